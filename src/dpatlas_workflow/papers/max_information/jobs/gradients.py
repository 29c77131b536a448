"""max_information: mean losses of randomised networks on one minibatch, and their gradients.

The laws of a stack are over the parameters of one network. They share the records and the standard
normals of a step, so that one pass computes the losses of all. Linear layers with ReLU between them
have a backward pass of their own, and a product is that of all laws; other networks go to autograd
one law at a time.

With h the input of a layer of mean weights M, deviations S and normals e, its output is h M^T + b +
d e where d^2 = h^2 (S^2)^T + s^2. For g, the loss's gradient by the output, let t = g e / d. Then
the gradient is g^T h by M, (t^T h^2) S by S, and g M + (t S^2) h by h.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.models.mean_field import MeanField
from dpatlas.models.mean_field_passes import outputs
from dpatlas.models.network import Network
from dpatlas_workflow.papers.max_information.records.certified import Loss

LEAST_LOG_PROBABILITY = -math.log(1e5)


class Gradients:
    """Losses of the laws N(mean, deviation^2) and their gradients, by autograd.

    mean (laws, width) is read anew at every call; the network's parameters come first in a row, and
    what follows them is 0 in `by_mean` and `by_deviation`. Before a call, `deviation` is set.
    """

    def __init__(self, network: Network, mean: Tensor, loss: Loss):
        self.loss: Loss = loss
        parameters = sum(value.numel() for value in network.parameters())
        self.deviation, self.variance = torch.zeros(2, *mean.shape, device=mean.device)
        # (2, laws, width): by mean and by deviation.
        self.all = torch.zeros(2, *mean.shape, device=mean.device)
        self.by_mean, self.by_deviation = self.all
        flats = (mean, self.deviation, self.variance, self.by_mean, self.by_deviation)
        of_parameters = [flat[:, :parameters] for flat in flats]
        self.law = MeanField(network, *(flat[0] for flat in of_parameters[:2]))
        # Views by name, (laws, *shape).
        self.views = [self.law.named(flat) for flat in of_parameters]

    def __call__(self, x: Tensor, labels: Tensor, normals: Sequence[Tensor]) -> Tensor:
        """Mean losses (laws,); x (rows, ...), labels (rows,), normals as `noise_sizes` has it."""
        means, scales, _, *by = self.views
        risks = []
        for number in range(len(self.deviation)):
            mean, scale = (
                {name: value[number].detach().requires_grad_() for name, value in views.items()}
                for views in (means, scales)
            )
            with torch.enable_grad():
                output = outputs(self.law.network, mean, scale, x, normals)
                risk = bounded_cross_entropy(output, labels, self.loss)
                leaves = [*mean.values(), *scale.values()]
                found = torch.autograd.grad(risk, leaves)
            for views, part in zip(
                (value for each in by for value in each.values()), found, strict=True
            ):
                views[number].copy_(part)
            risks.append(risk.detach())
        return torch.stack(risks)


class FullyConnectedGradients(Gradients):
    """The same for linear layers with ReLU between them, of all laws at once."""

    def __init__(self, network: Network, mean: Tensor, loss: Loss):
        super().__init__(network, mean, loss)
        names = [name for name, part in network.named_children() if isinstance(part, nn.Linear)]
        # Of every layer: the five flats as weights (laws, out, in) and biases (laws, 1, out).
        self.layers = [
            [(views[f"{name}.weight"], views[f"{name}.bias"][:, None]) for views in self.views]
            for name in names
        ]

    def __call__(self, x: Tensor, labels: Tensor, normals: Sequence[Tensor]) -> Tensor:
        """Mean losses (laws,); x (rows, ...), labels (rows,), normals as `noise_sizes` has it."""
        laws = len(self.deviation)
        torch.mul(self.deviation, self.deviation, out=self.variance)
        h, squared = (value.expand(laws, *x.shape) for value in (x, x * x))
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        for (mean, _, variance, *_), noise in zip(self.layers, normals, strict=True):
            if kept:
                h = h.clamp_min_(0)
                squared = h * h
            spread = torch.baddbmm(variance[1], squared, variance[0].mT).sqrt_()
            kept.append((h, squared, spread))
            h = torch.baddbmm(mean[1], h, mean[0].mT).addcmul_(spread, noise)
        risks, delta = self._loss(h, labels)
        for number in reversed(range(len(kept))):
            h, squared, spread = kept[number]
            mean, scale, variance, by_mean, by_scale = self.layers[number]
            # The gradient by the variance, times 2.
            lever = (delta * normals[number]).div_(spread)
            by_mean[0].copy_(delta.mT @ h)
            torch.sum(delta, 1, keepdim=True, out=by_mean[1])
            torch.mul(lever.mT @ squared, scale[0], out=by_scale[0])
            torch.mul(lever.sum(1, keepdim=True), scale[1], out=by_scale[1])
            if number:
                delta = (delta @ mean[0]).addcmul_(lever @ variance[0], h)
                delta = torch.ops.aten.threshold_backward(delta, h, 0)
        return risks

    def _loss(self, output: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Mean losses (laws,), and their gradients by output (laws, rows, classes)."""
        laws, rows, classes = output.shape
        # Softmax over rows of ten numbers is slow; over columns it is vectorised.
        output = output.mT.contiguous()
        picked = labels.expand(laws, 1, rows)
        scores = F.log_softmax(output, 1).gather(1, picked)
        scale = loss_scale(classes, self.loss)
        risks = scores.clamp_min(LEAST_LOG_PROBABILITY).mean((1, 2)).div_(-scale)
        delta = F.softmax(output, 1)
        delta.scatter_add_(1, picked, torch.full_like(scores, -1.0))
        # Clamped log-probabilities have no gradient.
        delta.mul_((scores >= LEAST_LOG_PROBABILITY) / (rows * scale))
        return risks, delta.mT.contiguous()


def gradients_of(network: Network, mean: Tensor, loss: Loss) -> Gradients:
    """The pass for `network`; mean (laws, width) as `Gradients` has it."""
    alternates = all(
        isinstance(part, nn.ReLU if index % 2 else nn.Linear) for index, part in enumerate(network)
    )
    return (FullyConnectedGradients if alternates else Gradients)(network, mean, loss)


def loss_scale(classes: int, loss: Loss) -> float:
    """The divisor of cross-entropy: log(1e5), or log(classes), with which it can exceed 1."""
    return -LEAST_LOG_PROBABILITY if loss == "bounded" else math.log(classes)


def bounded_cross_entropy(output: Tensor, labels: Tensor, loss: Loss = "bounded") -> Tensor:
    """Mean loss over rows; output (rows, classes). `per-class` can reach 11.5 / log(classes)."""
    scores = F.log_softmax(output, 1).gather(1, labels[:, None])
    return -scores.clamp_min(LEAST_LOG_PROBABILITY).mean() / loss_scale(output.shape[1], loss)
