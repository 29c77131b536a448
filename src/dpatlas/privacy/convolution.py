"""Per-record gradients of a convolution's weight, by the cheaper way where there are two."""

import functools
import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from dpatlas.privacy import clipping
from dpatlas.privacy.factors import Factored, gram, gram_roundings, slices

# The Gram form is used where it needs less than this share of the multiplications of the weight
# gradient: the alternative is a weight gradient per record, which takes a quarter longer than the
# same number of batched multiplications.
GRAM_SHARE = 0.25
# Maps of at most this many pixels have few enough pairs of pixels that a matrix product adds up the
# patches' inner products from the pixels'. It takes more multiplications than shifts take additions
# and less time, so that on a CPU the Gram form pays up to this share (a batch of 256 maps of 4 x 4:
# 8 to 16 channels 1.1 and 2.8 ms, share 2.2; 4 to 8 channels 0.9 and 0.7 ms, share 8).
FEW_PIXELS, FEW_PIXELS_SHARE = 16, 2.5
# One call computes the weight gradients of all records where each needs fewer multiplications than
# this: there the overhead of a call per record dominates.
SMALL_CONVOLUTION = 2_000_000


@dataclass(frozen=True)
class Shape:
    """Settings of a convolution in any number of dimensions, as torch's operation takes them."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    def of_height_one(self) -> "Shape":
        """The same of maps of height one."""
        stride, padding, dilation = (1, *self.stride), (0, *self.padding), (1, *self.dilation)
        output_padding = (0, *self.output_padding)
        return Shape(stride, padding, dilation, self.transposed, output_padding, self.groups)

    def gradients(
        self, delta: Tensor, x: Tensor, weight: Tensor, of: str, records: int = 1
    ) -> Tensor:
        """The gradient with respect to the "input" or the "weight".

        records: of which each has groups of its own, side by side in the channels.
        """
        found = torch.ops.aten.convolution_backward(
            delta,
            x,
            weight,
            None,
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            records * self.groups,
            [of == "input", of == "weight", False],
        )
        # Contiguous for every memory format of x and of the weights.
        return found[0] if of == "input" else found[1].contiguous()


class Convolution(Factored):
    """x (records * rows, in, ...) and delta (records * rows, out, ...) of a convolution.

    In two dimensions and with few positions, norms follow from Gram matrices of patches and of
    output gradients; else from each record's weight gradient, which is stored for the sum.
    """

    def __init__(self, weight: Tensor, shape: Shape, x: Tensor, delta: Tensor, rows: int):
        self.weight, self.shape, self.rows = weight, shape, rows
        self.kernel = tuple(weight.shape[2:])
        self.hold(self._keeps_factors(delta, x), x, delta)

    def _keeps_factors(self, delta: Tensor, x: Tensor) -> bool:
        """Whether x and delta are stored, because per-record gradients would cost more."""
        shape = self.shape
        if x.dim() != 4 or shape.transposed or self.rows > 1:
            return False
        if shape.groups > 1 or max(shape.dilation) > 1:
            return False
        if not clipping.may_look(delta):
            # By memory: in time there is little between them.
            return self.weight.numel() > x[0].numel() + delta[0].numel()
        into, out = x.shape[1], delta.shape[1]
        positions = math.prod(delta.shape[2:])
        products = positions * self.weight.numel()
        if few_pixels(x):
            pixels = math.prod(x.shape[2:])
            pairs = pixels * (pixels + 1) // 2
            gram = pixels**2 * into + positions**2 * (out + pairs)
            return gram < FEW_PIXELS_SHARE * products
        phase = math.prod(
            size + (kernel - 1) // stride
            for size, kernel, stride in zip(delta.shape[2:], self.kernel, shape.stride, strict=True)
        )
        phases = math.prod(map(min, self.kernel, shape.stride))
        gram = phases * phase**2 * into + positions**2 * out
        return gram < GRAM_SHARE * products

    def multiplied_out(self, inputs: Tensor, delta: Tensor) -> Tensor:
        """By one call with a group per record, or a call per record.

        On a GPU by products of patches, where there are patches.
        """
        x, weight, rows, shape = inputs, self.weight, self.rows, self.shape
        records = len(x) // rows
        plain = x.dim() == 4 and not shape.transposed and shape.groups == max(shape.dilation) == 1
        if plain and not clipping.may_look(delta):
            positions = rows * math.prod(delta.shape[2:])
            gradients = []
            for part in slices(records, positions * weight[0].numel()):
                where = slice(part.start * rows, part.stop * rows)
                patches = self._patches(x[where])
                deltas = delta[where].flatten(2).unflatten(0, (-1, rows)).transpose(1, 2).flatten(2)
                products = torch.bmm(deltas, patches.view(-1, positions, patches.shape[2]))
                gradients.append(self.in_weight_shape(products))
            return torch.cat(gradients).contiguous()
        positions = math.prod((x if shape.transposed else delta).shape[2:])
        if positions * rows * weight.numel() < SMALL_CONVOLUTION or not clipping.may_look(x):
            grouped_delta, grouped_x = (
                each.view(records, rows, *each.shape[1:]).transpose(0, 1).flatten(1, 2)
                for each in (delta, x)
            )
            # A weight gradient reads only the shape of the weights.
            like = weight.new_empty(records * len(weight), *weight.shape[1:])
            found = shape.gradients(grouped_delta, grouped_x, like, "weight", records)
            return found.view(records, *weight.shape)
        result = torch.empty(records, *weight.shape, dtype=x.dtype, device=x.device)
        for record in range(records):
            where = slice(record * rows, (record + 1) * rows)
            result[record] = shape.gradients(delta[where], x[where], weight, "weight")
        return result

    def grams(self) -> tuple[Tensor, Tensor, int]:
        """Of patches and of output gradients."""
        images, delta = self.gradient_factors()
        stride, padding = self.shape.stride, self.shape.padding
        inputs = patch_gram(images, self.kernel, stride, padding)
        outputs = gram(delta.flatten(2).transpose(1, 2))
        # Inner products of pixels, then sums over the kernel: of few pixels all at once, else over
        # its rows, its columns and the phases.
        roundings = sum(gram_roundings(maps.shape[1]) for maps in (images, delta))
        if few_pixels(images):
            roundings += math.prod(self.kernel)
        else:
            roundings += sum(self.kernel) + math.prod(map(min, self.kernel, stride))
        return inputs, outputs, roundings

    def product(self, delta: Tensor, inputs: Tensor) -> Tensor:
        """The ordinary weight gradient."""
        return self.shape.gradients(delta, inputs, self.weight, "weight")

    def positions(self) -> int:
        """Positions of the output."""
        return math.prod(self.gradient_factors()[1].shape[2:])

    def pairs(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Patches and output gradients of these records."""
        inputs, delta = self.gradient_factors()
        return self._patches(inputs[rows]), delta[rows].flatten(2).transpose(1, 2)

    def in_weight_shape(self, gradient: Tensor) -> Tensor:
        """(..., out, height * width * in) in the shape of the weight."""
        into = self.weight.shape[1]
        return gradient.unflatten(-1, (*self.kernel, into)).movedim(-1, -3)

    def _patches(self, x: Tensor) -> Tensor:
        """What each output position sees of x: (records, positions, height * width * in)."""
        padding, stride = self.shape.padding, self.shape.stride
        # Channels last: they are then read and written one after the other.
        x = x.contiguous(memory_format=torch.channels_last)
        x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
        for dim in (0, 1):
            x = x.unfold(2 + dim, self.kernel[dim], stride[dim])
        return x.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)


def few_pixels(x: Tensor) -> bool:
    """Whether `patch_gram` of such images goes by pairs of pixels."""
    return math.prod(x.shape[2:]) <= FEW_PIXELS


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
    numbers = torch.arange(1.0, count + 1, device="cpu").view(1, 1, *size)
    # The pixel under each offset of the kernel at each position; -1 in the padding.
    pixels = F.unfold(numbers, kernel, padding=padding, stride=stride)[0].long() - 1
    one, other = torch.broadcast_tensors(pixels[:, :, None], pixels[:, None, :])
    inside = torch.minimum(one, other) >= 0
    both = torch.minimum(one, other) * count + torch.maximum(one, other)
    entries = torch.arange(pixels.shape[1] ** 2, device="cpu").view(both.shape[1:]).expand_as(both)
    pairs, which = both[inside].unique(return_inverse=True)
    sums = torch.zeros(len(pairs), pixels.shape[1] ** 2, dtype=dtype, device="cpu")
    return pairs, sums.index_put_((which, entries[inside]), sums.new_ones(()), accumulate=True)
