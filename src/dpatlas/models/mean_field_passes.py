"""Forward passes of mean-field Gaussian networks, given standard normals from outside.

A linear layer on inputs a has independent normal outputs with mean a M^T + b and variance
a^2 V^T + v, so that drawing them (local reparametrisation: Kingma, Salimans and Welling, 2015)
draws the layer's weights afresh for every row. Positions of a convolution share their weights,
which are therefore drawn themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.models.mean_field import MeanField
from dpatlas.models.network import Network
from dpatlas.models.products import times_transpose

KINDS = ("weight", "bias")


def noise_sizes(network: Network, rows: int, draws: int) -> list[tuple[int, int]]:
    """Shapes of the standard normals that `outputs` takes, in order.

    (rows, outputs) for a linear layer and (draws, parameters) for a convolution, weights first.
    """
    return [
        (rows, part.out_features)
        if isinstance(part, nn.Linear)
        else (draws, sum(each.numel() for each in part.parameters()))
        for part in network
        if isinstance(part, nn.Linear | nn.Conv2d)
    ]


def outputs(
    network: Network,
    means: Mapping[str, Tensor],
    deviations: Mapping[str, Tensor],
    x: Tensor,
    noise: Sequence[Tensor],
    seen: Callable[[Tensor], object] | None = None,
) -> Tensor:
    """Outputs (rows, outputs) of records x (rows, ...); keeps what autograd needs.

    means, deviations: by parameter. noise: as `noise_sizes` has it; with one draw all rows share
    the weights of convolutions, with as many draws as rows every row has its own. seen: called with
    what each layer with parameters gives.
    """
    normals: Iterator[Tensor] = iter(noise)
    for name, part in network.named_children():
        if isinstance(part, nn.Linear | nn.Conv2d):
            layer = [values[f"{name}.{kind}"] for values in (means, deviations) for kind in KINDS]
            draw: Callable[..., Tensor] = (
                _Linear.apply if isinstance(part, nn.Linear) else _convolution
            )
            x = draw(x, *layer, next(normals))
            if seen is not None:
                seen(x)
        else:
            x = part(x)
    return x


def misclassified(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether the output of each row's label is not larger than all others, (rows,).

    logits (rows, outputs), labels (rows,). Ties count as errors, and so does a row with a value
    that is not finite, in which no output is meaningful.
    """
    own = logits.gather(1, labels[:, None])
    return ((logits >= own).sum(1) != 1) | ~logits.isfinite().all(1)


class _Linear(torch.autograd.Function):
    """Local reparametrisation with a backward pass of four products and few sweeps."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mean: Tensor,
        bias: Tensor,
        scale: Tensor,
        bias_scale: Tensor,
        noise: Tensor,
    ) -> Tensor:
        """x (rows, in), noise (rows, out) -> (rows, out)."""
        squared, variance = x * x, scale * scale
        deviation = torch.addmm(bias_scale * bias_scale, squared, variance.T).sqrt_()
        ctx.save_for_backward(x, squared, mean, scale, bias_scale, variance, deviation, noise)
        return torch.addmm(bias, x, mean.T).addcmul_(deviation, noise)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        """By x (where wanted), mean, bias, scale and bias_scale."""
        x, squared, mean, scale, bias_scale, variance, deviation, noise = ctx.saved_tensors
        # By the variance, times 2.
        spread = (delta * noise).div_(deviation)
        below = None
        if ctx.needs_input_grad[0]:
            below = torch.addcmul(delta @ mean, spread @ variance, x)
        by_scale = (spread.T @ squared).mul_(scale)
        by_bias_scale = spread.sum(0).mul_(bias_scale)
        return below, delta.T @ x, delta.sum(0), by_scale, by_bias_scale, None


def _convolution(
    x: Tensor, mean: Tensor, bias: Tensor, scale: Tensor, bias_scale: Tensor, noise: Tensor
) -> Tensor:
    """3x3 with padding 1, as all convolutions of `mean_field.NETWORKS` are."""
    count = mean.numel()
    draws = len(noise)
    weights = torch.addcmul(mean, scale, noise[:, :count].view(draws, *mean.shape))
    offsets = torch.addcmul(bias, bias_scale, noise[:, count:])
    return convolve(x, weights, offsets)


def convolve(x: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    """Convolve x (rows, ...) with one set of weights, or every row with its own.

    weights (draws, out, in, 3, 3), offsets (draws, out), draws 1 or rows.
    """
    draws, out = offsets.shape
    if draws == 1:
        return F.conv2d(x, weights[0], offsets[0], padding=1)
    together = F.conv2d(
        x.reshape(1, -1, *x.shape[2:]),
        weights.flatten(0, 1),
        offsets.flatten(),
        padding=1,
        groups=draws,
    )
    return together.view(draws, out, *x.shape[2:])


def sampled_outputs(posterior: MeanField, weights: Tensor, x: Tensor) -> Tensor:
    """Outputs (rows, outputs) of x (rows, ...), row i under weights[i]; weights (rows, parameters).

    Weights are ordinary ones; the posterior gives their names and shapes.
    """
    named = posterior.named(weights)
    for name, part in posterior.network.named_children():
        if isinstance(part, nn.Linear | nn.Conv2d):
            values, offsets = (named[f"{name}.{kind}"] for kind in KINDS)
            if isinstance(part, nn.Linear):
                x = torch.baddbmm(offsets[:, :, None], values, x[:, :, None])[:, :, 0]
            else:
                x = convolve(x, values, offsets)
        else:
            x = part(x)
    return x


class _Moments(NamedTuple):
    mean: Tensor
    bias: Tensor
    variance: Tensor
    bias_variance: Tensor

    def of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the outputs, both (rows, out)."""
        mean = times_transpose(x, self.mean).add_(self.bias)
        variance = times_transpose(x.square(), self.variance).add_(self.bias_variance)
        return mean, variance.sqrt_()


class FullyConnected:
    """A posterior over linear layers with ReLU between them, prepared for rows without gradients.

    Raises InputError for another network: local reparametrisation is wrong for shared weights.
    """

    def __init__(self, posterior: MeanField):
        for index, (name, part) in enumerate(posterior.network.named_children()):
            if not isinstance(part, nn.ReLU if index % 2 else nn.Linear):
                found = f"{name} ({type(part).__name__})"
                raise InputError("local reparametrisation", found, "linear layers, ReLU between")
        means = posterior.named(posterior.mean)
        variances = posterior.named(posterior.deviation.square())
        self.layers = [
            _Moments(*(values[f"{name}.{kind}"] for values in (means, variances) for kind in KINDS))
            for name, part in posterior.network.named_children()
            if isinstance(part, nn.Linear)
        ]

    def outputs(self, x: Tensor, repeats: Tensor, noise: Sequence[Tensor]) -> Tensor:
        """Record i of x (records, inputs) `repeats[i]` times, every row with its own weights.

        noise: (rows, out) for each layer, used up. The first layer's moments are those of the
        record and are computed once for all its rows.
        """
        first, *others = self.layers
        mean, deviation = (part.repeat_interleave(repeats, 0) for part in first.of(x))
        rows = noise[0].mul_(deviation).add_(mean)
        for layer, normals in zip(others, noise[1:], strict=True):
            mean, deviation = layer.of(rows.clamp_min_(0))
            rows = torch.addcmul(mean, deviation, normals, out=mean)
        return rows
