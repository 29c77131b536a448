"""Per-record gradients of convolutions, by the cheaper of two ways."""

import functools
import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.models.precision import exact
from dpatlas.privacy.factors import Factored, gram, gram_roundings

# The Gram form is used where it needs less than this share of the multiplications of the weight
# gradient: the alternative is a weight gradient per record, which takes a quarter longer than the
# same number of batched multiplications.
GRAM_SHARE = 0.25
# Maps of at most this many pixels have few enough pairs of pixels that a matrix product adds up the
# patches' inner products from the pixels'. It takes more multiplications than shifts take additions
# and less time, so that on a CPU the Gram form pays up to this share.
FEW_PIXELS, FEW_PIXELS_SHARE = 16, 1.0
# One call computes the weight gradients of all records where each needs fewer multiplications than
# this: there the overhead of a call per record dominates.
SMALL_CONVOLUTION = 2_000_000


class Conv2d(Factored):
    """nn.Conv2d with zero padding, any stride, dilation and groups.

    With few positions, norms follow from Gram matrices of patches and of output gradients; else
    from each record's weight gradient, which is stored for the sum.
    """

    layer: nn.Conv2d

    def __init__(self, name: str, layer: nn.Conv2d, views: int = 1):
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise InputError(
                f"layer {name} (Conv2d)",
                f"padding {layer.padding!r} with mode {layer.padding_mode}",
                "padding in pixels with mode zeros",
            )
        super().__init__(name, layer, views)
        self.padding = layer.padding

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The convolution."""
        layer = self.layer
        return (
            F.conv2d(
                x,
                self.value("weight"),
                self.value_if_any("bias"),
                layer.stride,
                self.padding,
                layer.dilation,
                layer.groups,
            ),
        )

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores factors or per-record gradients, whichever costs less."""
        if "weight" in self.trainable:
            if self._by_gram(delta, x):
                self.inputs, self.delta = x, delta
            else:
                with exact():
                    self.record_gradients["weight"] = self._per_record(x, delta)
        if "bias" in self.trainable:
            rows = delta.sum((2, 3))
            self.record_gradients["bias"] = rows.view(-1, self.views, rows.shape[1]).sum(1)
        return self._input_gradient(delta, x) if needs_x else None

    def norms2(self, small: float = 0.0) -> Tensor:
        """||g_i||^2 = <patches patches^T, delta^T delta> where factors are stored."""
        total = super().norms2(small)
        if self.delta is None:
            return total
        layer, (images, delta) = self.layer, self.gradient_factors()
        kernel, stride = layer.kernel_size, layer.stride
        inputs = patch_gram(images, kernel, stride, self.padding)
        outputs = gram(delta.flatten(2).transpose(1, 2))
        # Inner products of pixels, then sums over the kernel: of few pixels all at once, else over
        # its rows, its columns and the phases.
        roundings = sum(map(gram_roundings, (layer.in_channels, layer.out_channels)))
        if few_pixels(images):
            roundings += math.prod(kernel)
        else:
            roundings += sum(kernel) + math.prod(map(min, kernel, stride))
        return total + self.bounds2(inputs, outputs, roundings, small)

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """The ordinary weight gradient of the scaled output gradients where factors are stored."""
        gradients = super().weighted(factors)
        if self.delta is not None:
            gradients["weight"] = self.weighted_factors(factors)
        return gradients

    def product(self, delta: Tensor, inputs: Tensor) -> Tensor:
        """The ordinary weight gradient."""
        return self._gradients(delta, inputs, self.value("weight"), "weight")

    def positions(self) -> int:
        """Positions of the output."""
        return math.prod(self.gradient_factors()[1].shape[2:])

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Patches and output gradients of these records."""
        layer, (inputs, delta) = self.layer, self.gradient_factors()
        patches = F.unfold(
            inputs[rows].double(),
            layer.kernel_size,
            padding=self.padding,
            stride=layer.stride,
        )
        return patches.transpose(1, 2), delta[rows].double().flatten(2).transpose(1, 2)

    def _by_gram(self, delta: Tensor, x: Tensor) -> bool:
        layer = self.layer
        if self.views > 1 or layer.groups > 1 or layer.dilation != (1, 1):
            return False
        positions = math.prod(delta.shape[2:])
        products = positions * layer.weight.numel()
        if few_pixels(x):
            pixels = math.prod(x.shape[2:])
            pairs = pixels * (pixels + 1) // 2
            gram = pixels**2 * layer.in_channels + positions**2 * (layer.out_channels + pairs)
            return gram < FEW_PIXELS_SHARE * products
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
            grouped_delta, grouped_x = (
                rows.view(records, views, *rows.shape[1:]).transpose(0, 1).flatten(1, 2)
                for rows in (delta, x)
            )
            # A weight gradient reads only the shape of the weights.
            shape = weight.new_empty(records * len(weight), *weight.shape[1:])
            gradients = self._gradients(grouped_delta, grouped_x, shape, "weight", records)
            return gradients.view(records, *weight.shape)
        gradients = torch.empty(records, *weight.shape, dtype=x.dtype, device=x.device)
        for record in range(records):
            rows = slice(record * views, (record + 1) * views)
            gradients[record] = self._gradients(delta[rows], x[rows], weight, "weight")
        return gradients

    def _input_gradient(self, delta: Tensor, x: Tensor) -> Tensor:
        layer, weight = self.layer, self.value("weight")
        sides = [
            size - 1 - padding
            for size, padding in zip(layer.kernel_size, self.padding, strict=True)
        ]
        if (
            x.device.type != "cpu"
            or (layer.stride, layer.dilation, layer.groups) != ((1, 1), (1, 1), 1)
            or min(sides) < 0
        ):
            return self._gradients(delta, x, weight, "input")
        # The convolution with the kernel turned round: the same sums, a quarter faster.
        return F.conv2d(delta, weight.flip(2, 3).transpose(0, 1).contiguous(), None, 1, sides)

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
            self.padding,
            layer.dilation,
            False,
            [0, 0],
            records * layer.groups,
            [of == "input", of == "weight", False],
        )
        # Contiguous for every memory format of x and of the weights.
        return gradients[0] if of == "input" else gradients[1].contiguous()


def few_pixels(x: Tensor) -> bool:
    """Whether `patch_gram` of such images, on a CPU, goes by pairs of pixels."""
    return x.device.type == "cpu" and math.prod(x.shape[2:]) <= FEW_PIXELS


def patch_gram(
    x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> Tensor:
    """Gram matrices of a convolution's patches, (records, positions, positions), without unfolding.

    The inner product of two patches is a sum over the kernel's offsets of inner products of pixels.
    Offsets that are a whole stride apart read the same pixel Gram matrix, shifted, so one pixel
    Gram matrix per phase of the stride serves all offsets: k^2 / s^2 times fewer multiplications.
    Of few pixels, a constant matrix adds up the entries of one pixel Gram matrix.
    """
    if few_pixels(x):
        pairs, sums = _pixel_pairs(x.shape[2:], kernel, stride, padding, x.dtype)
        pixels = gram(x.flatten(2).transpose(1, 2)).flatten(1)
        return (pixels.index_select(1, pairs) @ sums).unflatten(1, (math.isqrt(sums.shape[1]), -1))
    x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    height, width = (
        (size - k) // s + 1 for size, k, s in zip(x.shape[2:], kernel, stride, strict=True)
    )
    total: Tensor | None = None
    for top in range(min(kernel[0], stride[0])):
        for left in range(min(kernel[1], stride[1])):
            rows, columns = (
                [offset // s for offset in range(start, k, s)]
                for start, k, s in zip((top, left), kernel, stride, strict=True)
            )
            phase = x[:, :, top :: stride[0], left :: stride[1]]
            phase = phase[:, :, : height + rows[-1], : width + columns[-1]]
            shape = phase.shape[2:]
            pixels = gram(phase.flatten(2).transpose(1, 2)).view(len(x), *shape, *shape)
            # Sums over shifts along rows and along columns are separable.
            tall = cast(Tensor, sum(pixels[:, r : r + height, :, r : r + height] for r in rows))
            shifts = (tall[:, :, c : c + width, :, c : c + width] for c in columns)
            shifted = cast(Tensor, sum(shifts))
            total = shifted if total is None else total + shifted
    assert total is not None
    return total.reshape(len(x), height * width, height * width)


@functools.lru_cache(maxsize=16)
def _pixel_pairs(
    size: torch.Size,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Pairs (indices into a flat pixel Gram matrix), and how often each is in a patch Gram entry.

    Shapes (pairs,) and (pairs, positions^2). A pair and its reverse count as one.
    """
    count = math.prod(size)
    numbers = torch.arange(1.0, count + 1).view(1, 1, *size)
    # The pixel under each offset of the kernel at each position; -1 in the padding.
    pixels = F.unfold(numbers, kernel, padding=padding, stride=stride)[0].long() - 1
    one, other = torch.broadcast_tensors(pixels[:, :, None], pixels[:, None, :])
    inside = torch.minimum(one, other) >= 0
    both = torch.minimum(one, other) * count + torch.maximum(one, other)
    entries = torch.arange(pixels.shape[1] ** 2).view(both.shape[1:]).expand_as(both)
    pairs, which = both[inside].unique(return_inverse=True)
    sums = torch.zeros(len(pairs), pixels.shape[1] ** 2, dtype=dtype)
    return pairs, sums.index_put_((which, entries[inside]), sums.new_ones(()), accumulate=True)
