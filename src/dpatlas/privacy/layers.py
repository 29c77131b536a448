"""Rules (`dpatlas.privacy.rules`) of linear layers, normalisations and learned tokens."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.models.precision import exact
from dpatlas.models.vit import ClassToken
from dpatlas.privacy.factors import Factored, gram, gram_roundings, multiplied
from dpatlas.privacy.rules import Rule, inputs_norms2, rows_norm2

# The Gram form of a linear layer over positions is used where it needs less than this share of the
# multiplications of the weight gradient: the alternative is a batched product whose results fill
# the memory.
LINEAR_GRAM_SHARE = 0.7


class Linear(Factored):
    """nn.Linear on (records, in) or (records, ..., in); dL_i/dW = sum_t delta_it a_it^T."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """x W^T + b."""
        return (F.linear(x, self.value("weight"), self.value_if_any("bias")),)

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores factors (records, positions, features), or gradients where they cost less."""
        records = len(x) // self.views
        a = x.reshape(records, -1, x.shape[-1])
        rows = delta.reshape(records, -1, delta.shape[-1])
        positions, into, out = *a.shape[1:], rows.shape[2]
        if positions == 1:
            self.inputs, self.delta = a, rows
        else:
            if "bias" in self.trainable:
                self.record_gradients["bias"] = rows.sum(1)
            if "weight" in self.trainable:
                if positions * (into + out) < LINEAR_GRAM_SHARE * into * out:
                    self.inputs, self.delta = a, rows
                else:
                    with exact():
                        self.record_gradients["weight"] = multiplied(rows, a)
        return delta @ self.value("weight") if needs_x else None

    def norms2(self, small: float = 0.0) -> Tensor:
        """||delta||^2 (||a||^2 + 1) for one position; <delta delta^T, a a^T>, or of gradients."""
        total = super().norms2(small)
        if self.delta is None:
            return total
        inputs, delta = self.gradient_factors()
        if self.positions() == 1:
            input_norms2 = inputs_norms2(inputs) if "weight" in self.trainable else 0
            return rows_norm2(delta) * (input_norms2 + int("bias" in self.trainable))
        return total + self.factored_norms2(small)

    def grams(self) -> tuple[Tensor, Tensor, int]:
        """Of the factors as they are."""
        factors = inputs, delta = self.gradient_factors()
        return gram(inputs), gram(delta), sum(gram_roundings(rows.shape[2]) for rows in factors)

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """(c delta)^T a in one product over records and positions."""
        gradients = super().weighted(factors)
        if self.delta is not None:
            if "weight" in self.trainable:
                gradients["weight"] = self.weighted_factors(factors)
            if "bias" in self.trainable and "bias" not in gradients:
                gradients["bias"] = (self.delta[:, 0] * factors[:, None]).sum(0)
        return gradients

    def product(self, delta: Tensor, inputs: Tensor) -> Tensor:
        """One product over records and positions."""
        return delta.flatten(0, 1).T @ inputs.flatten(0, 1)

    def positions(self) -> int:
        """Number of positions of a record, over all its views."""
        return self.gradient_factors()[0].shape[1]

    def pairs(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """The factors of these records."""
        inputs, delta = self.gradient_factors()
        return inputs[rows], delta[rows]


class GroupNorm(Rule):
    """nn.GroupNorm by torch's backward kernel, with the records' channels as one record's channels.

    The kernel sums the gradients of weight and bias over the batch. Called with one record of
    records x channels channels, it returns them per record at the same cost.
    """

    layer: nn.GroupNorm

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Normalised x, and the mean and 1/std of each group."""
        layer = self.layer
        return torch.native_group_norm(
            x.contiguous(),
            self.value_if_any("weight"),
            self.value_if_any("bias"),
            len(x),
            layer.num_channels,
            math.prod(x.shape[2:]),
            layer.num_groups,
            layer.eps,
        )

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores per-record gradients of weight and bias, where they are trained."""
        mean, rstd = saved
        rows, channels, groups = len(x), self.layer.num_channels, self.layer.num_groups
        if not self.trainable:
            size = rows, channels, math.prod(x.shape[2:]), groups
            tensors = delta.contiguous(), x.contiguous(), mean, rstd, self.value_if_any("weight")
            wanted = [True, False, False]
            return torch.ops.aten.native_group_norm_backward(*tensors, *size, wanted)[0]
        below, weight, bias = torch.ops.aten.native_group_norm_backward(
            delta.contiguous().view(1, rows * channels, -1),
            x.contiguous().view(1, rows * channels, -1),
            mean.view(1, -1),
            rstd.view(1, -1),
            self.value("weight").repeat(rows),
            1,
            rows * channels,
            math.prod(x.shape[2:]),
            rows * groups,
            [needs_x, True, True],
        )
        for key, gradient in (("weight", weight), ("bias", bias)):
            if key in self.trainable:
                self.record_gradients[key] = gradient.view(-1, self.views, channels).sum(1)
        return below.view_as(x) if needs_x else None


class LayerNorm(Rule):
    """nn.LayerNorm over the last dimensions, weight and bias of their shape."""

    layer: nn.LayerNorm

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Normalised x, and the mean and 1/std of each row."""
        layer = self.layer
        weight, bias = self.value_if_any("weight"), self.value_if_any("bias")
        return torch.native_layer_norm(x, layer.normalized_shape, weight, bias, layer.eps)

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores per-record gradients: sums of delta x^ and of delta over positions."""
        mean, rstd = saved
        shape = self.layer.normalized_shape
        if "weight" in self.trainable:
            normalised = ((x - mean) * rstd).mul_(delta)
            self.record_gradients["weight"] = self.summed(normalised, len(shape))
        if "bias" in self.trainable:
            self.record_gradients["bias"] = self.summed(delta, len(shape))
        if not needs_x:
            return None
        weight, bias = self.value_if_any("weight"), self.value_if_any("bias")
        return torch.ops.aten.native_layer_norm_backward(
            delta, x, list(shape), mean, rstd, weight, bias, [True, False, False]
        )[0]


class RMSNorm(Rule):
    """nn.RMSNorm over the last dimensions, weight of their shape."""

    layer: nn.RMSNorm
    parameters = ("weight",)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """x / sqrt(mean(x^2) + eps) times the weight, and that root's inverse."""
        layer, weight = self.layer, self.value_if_any("weight")
        eps = torch.finfo(x.dtype).eps if layer.eps is None else layer.eps
        inverse = x.square().mean(self._dims(), keepdim=True).add_(eps).rsqrt_()
        normalised = x * inverse
        return normalised if weight is None else normalised.mul_(weight), inverse

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores per-record gradients: sums of delta x^ over positions."""
        (inverse,) = saved
        normalised, dims = x * inverse, self._dims()
        product = delta * normalised
        if "weight" in self.trainable:
            self.record_gradients["weight"] = self.summed(product, len(dims))
        if not needs_x:
            return None
        weight = self.value_if_any("weight")
        if weight is not None:
            delta, product = delta * weight, product.mul_(weight)
        return (delta - normalised.mul_(product.mean(dims, keepdim=True))).mul_(inverse)

    def _dims(self) -> tuple[int, ...]:
        return tuple(range(-len(self.layer.normalized_shape), 0))


class FrozenBatchNorm(Rule):
    """Batch normalisation by running statistics: each channel has a constant factor and offset.

    The statistics are part of what is released, so they must not come from private records.
    """

    layer: nn.BatchNorm1d

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(x - mean) / sqrt(variance + eps) times weight plus bias."""
        layer = self.layer
        statistics = layer.running_mean, layer.running_var
        weight, bias = self.value_if_any("weight"), self.value_if_any("bias")
        return (F.batch_norm(x, *statistics, weight, bias, False, 0.0, layer.eps),)

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores per-record gradients: sums of delta x^ and of delta over positions."""
        mean, variance = self.layer.running_mean, self.layer.running_var
        assert mean is not None and variance is not None
        shape = -1, *[1] * (x.dim() - 2)
        inverse = (variance + self.layer.eps).rsqrt_().view(shape)
        for key in self.trainable:
            rows = delta if key == "bias" else (x - mean.view(shape)).mul_(inverse).mul_(delta)
            self.record_gradients[key] = self.summed(
                rows.flatten(2).sum(2) if x.dim() > 2 else rows, 1
            )
        if not needs_x:
            return None
        weight = self.value_if_any("weight")
        return delta * (inverse if weight is None else inverse * weight.view(shape))


class OffsetRule(Rule):
    """A learned tensor added to every record: its gradient is delta itself."""

    parameters = ("value",)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """x + value."""
        return (x + self.value("value"),)

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores delta, summed over views."""
        rows = delta.view(-1, self.views, *delta.shape[1:])
        # A copy, because `discard` writes into it and the layers below read delta.
        self.record_gradients["value"] = rows.sum(1) if self.views > 1 else delta.clone()
        return delta


class ClassTokenRule(Rule):
    """A learned first token: its gradient is delta at that token."""

    layer: ClassToken
    parameters = ("value",)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """x with the token in front."""
        token = self.value("value").expand(len(x), 1, -1)
        return (torch.cat([token, x], 1),)

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores the first token's delta, summed over views."""
        first = delta[:, 0].reshape(-1, self.views, delta.shape[2]).sum(1)
        self.record_gradients["value"] = first.view(-1, *self.layer.value.shape)
        return delta[:, 1:]
