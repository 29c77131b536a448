"""What each layer type must tell, so that one backward pass gives every record's gradient norm.

A layer that the engine watches keeps what its records' gradients are made of: either the gradients
themselves or their two factors, the input `a` and the output gradient `delta`. From that it gives
squared norms per record and, once the clip factors are known, the weighted sum of gradients:

    g_i = dL_i / dW,     ||g_i||^2,     sum_i c_i g_i.

Records are the first dimension of every tensor. With `views` > 1 a record owns that many
consecutive rows, and its gradient is the sum over them.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.models.vit import ClassToken, Offset

# The Gram form is taken where its products cost less than this share of the weight gradient's. A
# convolution weighs it against weight gradients of one record at a time, a quarter dearer than
# batched ones; a linear layer against a batched product whose results fill the memory (measured).
GRAM_SHARE = 0.25
LINEAR_GRAM_SHARE = 0.7
# Convolutions whose weight gradient of one record needs fewer products than a call costs time go
# through one call for all records.
SMALL_CONVOLUTION = 2_000_000


class Watched(torch.autograd.Function):
    """A layer whose backward pass gives input gradients only and shows its factors to the rule."""

    @staticmethod
    def forward(ctx, x: Tensor, anchor: Tensor, rule: "Rule") -> Tensor:
        """The layer's output; `anchor` makes autograd come back here even if x is data."""
        output, *kept = rule.forward(x)
        ctx.save_for_backward(x, *kept)
        ctx.rule = rule
        return output

    @staticmethod
    def backward(ctx, delta: Tensor) -> tuple[Tensor | None, None, None]:
        """The gradient with respect to x, where it is needed."""
        below = ctx.rule.backward(delta, *ctx.saved_tensors, wanted=ctx.needs_input_grad[0])
        return below, None, None


class Rule:
    """One watched layer. Subclasses say how their parameters' gradients follow from the factors.

    After the backward pass, `kept` maps each trainable parameter to its per-record gradients
    (records, *shape); a subclass that keeps factors instead overrides `norms2` and `weighted`.
    """

    parameters: ClassVar[tuple[str, ...]] = ("weight", "bias")

    def __init__(self, name: str, layer: nn.Module, views: int = 1):
        self.name, self.layer, self.views = name, layer, views
        own = {key: getattr(layer, key, None) for key in self.parameters}
        self.trainable = {
            key: value for key, value in own.items() if value is not None and value.requires_grad
        }
        self.anchor = torch.zeros(0, requires_grad=True)
        self.calls = 0
        self.kept: dict[str, Tensor] = {}

    def __call__(self, x: Tensor) -> Tensor:
        """What stands in for the layer's `forward`."""
        self.calls += 1
        if self.calls > 1:
            raise InputError(
                f"layer {self.name}", "used more than once in a pass", "a layer used once"
            )
        return Watched.apply(x, self.anchor, self)

    def reset(self) -> None:
        """Forget the last pass."""
        self.calls = 0
        self.kept = {}

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Output, and tensors to keep for `backward` beside x."""
        raise NotImplementedError

    def backward(self, delta: Tensor, x: Tensor, *kept: Tensor, wanted: bool) -> Tensor | None:
        """Fill `kept`; the gradient with respect to x if it is wanted."""
        raise NotImplementedError

    def value(self, key: str) -> Tensor | None:
        """A parameter's values, outside of autograd; None if the layer has none."""
        parameter = getattr(self.layer, key)
        return None if parameter is None else parameter.detach()

    def norms2(self) -> Tensor:
        """||g_i||^2 over the layer's trainable parameters, shape (records,)."""
        return sum(rows_norm2(gradients) for gradients in self.kept.values())

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """sum_i c_i g_i by parameter, from `factors` c of shape (records,)."""
        return {
            key: (factors @ gradients.flatten(1)).view(gradients.shape[1:])
            for key, gradients in self.kept.items()
        }

    def discard(self, bad: Tensor) -> None:
        """Zero what is kept of the records in the mask `bad`: 0 times infinity would be NaN."""
        for gradients in self.kept.values():
            gradients[bad] = 0


def rows_norm2(gradients: Tensor) -> Tensor:
    """||row||^2 of a (records, ...) tensor, without a squared copy of it."""
    return torch.linalg.vector_norm(gradients.flatten(1), dim=1).square_()


class Linear(Rule):
    """nn.Linear on (records, in) or (records, ..., in); dL_i/dW = sum_t delta_it a_it^T."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """x W^T + b."""
        return (F.linear(x, self.value("weight"), self.value("bias")),)

    def backward(self, delta: Tensor, x: Tensor, *kept: Tensor, wanted: bool) -> Tensor | None:
        """Keeps factors (records, positions, features), or gradients where they cost less."""
        records = len(x) // self.views
        a = x.reshape(records, -1, x.shape[-1])
        rows = delta.reshape(records, -1, delta.shape[-1])
        positions, into, out = *a.shape[1:], rows.shape[2]
        if positions == 1:
            self.a, self.delta = a, rows
        else:
            if "bias" in self.trainable:
                self.kept["bias"] = rows.sum(1)
            if "weight" in self.trainable:
                if positions * (into + out) < LINEAR_GRAM_SHARE * into * out:
                    self.a, self.delta = a, rows
                else:
                    self.kept["weight"] = torch.bmm(rows.transpose(1, 2), a)
        return delta @ self.value("weight") if wanted else None

    def norms2(self) -> Tensor:
        """One position: ||delta||^2 (||a||^2 + 1). More: <delta delta^T, a a^T>, or as kept."""
        total = super().norms2()
        if self.a is None:
            return total
        if self.a.shape[1] == 1:
            share = rows_norm2(self.a) if "weight" in self.trainable else 0
            return rows_norm2(self.delta) * (share + int("bias" in self.trainable))
        inputs, outputs = (torch.bmm(rows, rows.transpose(1, 2)) for rows in (self.a, self.delta))
        return total + torch.linalg.vecdot(inputs.flatten(1), outputs.flatten(1))

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """(c delta)^T a in one product over records and positions."""
        found = super().weighted(factors)
        if self.a is not None:
            scaled = (self.delta * factors[:, None, None]).flatten(0, 1)
            if "weight" in self.trainable:
                found["weight"] = scaled.T @ self.a.flatten(0, 1)
            if "bias" in self.trainable and "bias" not in found:
                found["bias"] = scaled.sum(0)
        return found

    def discard(self, bad: Tensor) -> None:
        """Factors are copied: they may be the caller's own records."""
        super().discard(bad)
        if self.a is not None:
            keep = ~bad[:, None, None]
            self.a = torch.where(keep, self.a, 0)
            self.delta = torch.where(keep, self.delta, 0)

    def reset(self) -> None:
        """Forget the last pass."""
        super().reset()
        self.a = self.delta = None


class Conv2d(Rule):
    """nn.Conv2d with zero padding, any stride, dilation and groups.

    Where there are few positions, norms come from Gram matrices of patches and of output
    gradients; else from every record's own weight gradient, which is kept for the sum.
    """

    def __init__(self, name: str, layer: nn.Conv2d, views: int = 1):
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise InputError(
                f"layer {name} (Conv2d)",
                f"padding {layer.padding!r} with mode {layer.padding_mode}",
                "padding in pixels with mode zeros",
            )
        super().__init__(name, layer, views)
        self.x = self.delta = None

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The convolution."""
        layer = self.layer
        return (
            F.conv2d(
                x,
                self.value("weight"),
                self.value("bias"),
                layer.stride,
                layer.padding,
                layer.dilation,
                layer.groups,
            ),
        )

    def backward(self, delta: Tensor, x: Tensor, *kept: Tensor, wanted: bool) -> Tensor | None:
        """Keeps factors or per-record gradients, whichever costs less."""
        if "weight" in self.trainable:
            if self._few_positions(delta):
                self.x, self.delta = x, delta
            else:
                self.kept["weight"] = self._per_record(x, delta)
        if "bias" in self.trainable:
            rows = delta.sum((2, 3))
            self.kept["bias"] = rows.view(-1, self.views, rows.shape[1]).sum(1)
        return self._gradients(delta, x, self.value("weight"), "input") if wanted else None

    def norms2(self) -> Tensor:
        """||g_i||^2 = <patches patches^T, delta^T delta> where factors are kept."""
        total = super().norms2()
        if self.delta is None:
            return total
        gram = patch_gram(self.x, self.layer.kernel_size, self.layer.stride, self.layer.padding)
        output = self.delta.flatten(2)
        output = torch.bmm(output.transpose(1, 2), output)
        return total + torch.linalg.vecdot(gram.flatten(1), output.flatten(1))

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """The ordinary weight gradient of the scaled output gradients where factors are kept."""
        found = super().weighted(factors)
        if self.delta is not None:
            scaled = self.delta * factors[:, None, None, None]
            found["weight"] = self._gradients(scaled, self.x, self.value("weight"), "weight")
        return found

    def discard(self, bad: Tensor) -> None:
        """Zero the records' factors or gradients."""
        super().discard(bad)
        if self.delta is not None:
            keep = ~bad[:, None, None, None]
            self.x = torch.where(keep, self.x, 0)
            self.delta = torch.where(keep, self.delta, 0)

    def reset(self) -> None:
        """Forget the last pass."""
        super().reset()
        self.x = self.delta = None

    def _few_positions(self, delta: Tensor) -> bool:
        layer = self.layer
        if self.views > 1 or layer.groups > 1 or layer.dilation != (1, 1):
            return False
        positions = math.prod(delta.shape[2:])
        products = positions * layer.weight.numel()
        phase = math.prod(
            size + (kernel - 1) // stride
            for size, kernel, stride in zip(
                delta.shape[2:], layer.kernel_size, layer.stride, strict=True
            )
        )
        phases = math.prod(map(min, layer.kernel_size, layer.stride))
        gram = phases * phase**2 * layer.in_channels + positions**2 * layer.out_channels
        return gram < GRAM_SHARE * products

    def _per_record(self, x: Tensor, delta: Tensor) -> Tensor:
        """(records, *weight.shape): one call with a group per record, or a call per record."""
        weight, views = self.value("weight"), self.views
        records = len(x) // views
        small = math.prod(delta.shape[2:]) * views * weight.numel() < SMALL_CONVOLUTION
        if small or x.device.type != "cpu":
            grouped = [
                rows.view(records, views, *rows.shape[1:]).transpose(0, 1).flatten(1, 2)
                for rows in (delta, x)
            ]
            found = self._gradients(*grouped, weight.repeat(records, 1, 1, 1), "weight", records)
            return found.view(records, *weight.shape)
        found = torch.empty(records, *weight.shape, dtype=x.dtype, device=x.device)
        for record in range(records):
            rows = slice(record * views, (record + 1) * views)
            found[record] = self._gradients(delta[rows], x[rows], weight, "weight")
        return found

    def _gradients(
        self, delta: Tensor, x: Tensor, weight: Tensor, of: str, records: int = 1
    ) -> Tensor:
        layer = self.layer
        gradients = torch.ops.aten.convolution_backward(
            delta,
            x,
            weight,
            None,
            layer.stride,
            layer.padding,
            layer.dilation,
            False,
            [0, 0],
            records * layer.groups,
            [of == "input", of == "weight", False],
        )
        return gradients[0 if of == "input" else 1]


def patch_gram(
    x: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """Gram matrices of a convolution's patches, (records, positions, positions), unfolding nothing.

    Two patches' inner product is a sum over the kernel's offsets of inner products of pixels, and
    offsets that are a whole stride apart read the same matrix of pixels, shifted: so one pixel Gram
    per phase of the stride serves all offsets, k^2 / s^2 times fewer products than patches need.
    """
    x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    height, width = (
        (size - k) // s + 1 for size, k, s in zip(x.shape[2:], kernel, stride, strict=True)
    )
    total = None
    for top in range(min(kernel[0], stride[0])):
        for left in range(min(kernel[1], stride[1])):
            rows, columns = (
                [offset // s for offset in range(start, k, s)]
                for start, k, s in zip((top, left), kernel, stride, strict=True)
            )
            phase = x[:, :, top :: stride[0], left :: stride[1]]
            phase = phase[:, :, : height + rows[-1], : width + columns[-1]]
            shape = phase.shape[2:]
            flat = phase.flatten(2)
            pixels = torch.bmm(flat.transpose(1, 2), flat).view(len(x), *shape, *shape)
            # The shifts along rows and along columns separate.
            tall = sum(pixels[:, r : r + height, :, r : r + height] for r in rows)
            gram = sum(tall[:, :, c : c + width, :, c : c + width] for c in columns)
            total = gram if total is None else total + gram
    return total.reshape(len(x), height * width, height * width)


class GroupNorm(Rule):
    """nn.GroupNorm: its own backward kernel, told that every record is a set of channels.

    torch sums the gradients of weight and bias over the batch; seen as one record with
    records x channels channels, the same kernel gives them per record at the same cost.
    """

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Normalised x, and the mean and 1/std of each group."""
        layer = self.layer
        return torch.native_group_norm(
            x.contiguous(),
            self.value("weight"),
            self.value("bias"),
            len(x),
            layer.num_channels,
            math.prod(x.shape[2:]),
            layer.num_groups,
            layer.eps,
        )

    def backward(self, delta: Tensor, x: Tensor, *kept: Tensor, wanted: bool) -> Tensor | None:
        """Keeps per-record gradients of weight and bias."""
        mean, rstd = kept
        rows, channels, groups = len(x), self.layer.num_channels, self.layer.num_groups
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
            [wanted, True, True],
        )
        for key, gradient in (("weight", weight), ("bias", bias)):
            if key in self.trainable:
                self.kept[key] = gradient.view(-1, self.views, channels).sum(1)
        return below.view_as(x) if wanted else None


class LayerNorm(Rule):
    """nn.LayerNorm over the last dimensions, weight and bias of their shape."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Normalised x, and the mean and 1/std of each row."""
        layer = self.layer
        return torch.native_layer_norm(
            x, layer.normalized_shape, self.value("weight"), self.value("bias"), layer.eps
        )

    def backward(self, delta: Tensor, x: Tensor, *kept: Tensor, wanted: bool) -> Tensor | None:
        """Keeps per-record gradients: sums of delta x^ and of delta over positions."""
        mean, rstd = kept
        shape = self.layer.normalized_shape
        records = len(x) // self.views
        by_record = (records, -1, *shape)
        if "weight" in self.trainable:
            normalised = ((x - mean) * rstd).mul_(delta)
            self.kept["weight"] = normalised.reshape(by_record).sum(1)
        if "bias" in self.trainable:
            self.kept["bias"] = delta.reshape(by_record).sum(1)
        if not wanted:
            return None
        weight, bias = self.value("weight"), self.value("bias")
        return torch.ops.aten.native_layer_norm_backward(
            delta, x, list(shape), mean, rstd, weight, bias, [True, False, False]
        )[0]


class OffsetRule(Rule):
    """A learned tensor added to every record: its gradient is delta itself."""

    parameters = ("value",)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """x + value."""
        return (x + self.value("value"),)

    def backward(self, delta: Tensor, x: Tensor, *kept: Tensor, wanted: bool) -> Tensor | None:
        """Keeps delta, summed over views."""
        rows = delta.view(-1, self.views, *delta.shape[1:])
        # A copy, because `discard` writes into it and delta goes on to the layers below.
        self.kept["value"] = rows.sum(1) if self.views > 1 else delta.clone()
        return delta


class ClassTokenRule(Rule):
    """A learned first token: its gradient is delta at that token."""

    parameters = ("value",)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The token before the others."""
        token = self.value("value").expand(len(x), 1, -1)
        return (torch.cat([token, x], 1),)

    def backward(self, delta: Tensor, x: Tensor, *kept: Tensor, wanted: bool) -> Tensor | None:
        """Keeps the first token's delta, summed over views."""
        first = delta[:, 0].reshape(-1, self.views, delta.shape[2]).sum(1)
        self.kept["value"] = first.view(-1, *self.layer.value.shape)
        return delta[:, 1:]


RULES: dict[type[nn.Module], type[Rule]] = {
    nn.Linear: Linear,
    nn.Conv2d: Conv2d,
    nn.GroupNorm: GroupNorm,
    nn.LayerNorm: LayerNorm,
    Offset: OffsetRule,
    ClassToken: ClassTokenRule,
}


def rule_for(name: str, layer: nn.Module, views: int = 1) -> Rule | None:
    """The rule that watches `layer`, None for a type that has none."""
    rule = RULES.get(type(layer))
    return None if rule is None else rule(name, layer, views)
