"""Per-record gradients of convolutions, by the cheaper of two ways where there are two."""

import functools
import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.models.precision import exact
from dpatlas.privacy import clipping
from dpatlas.privacy.factors import Factored, gram, gram_roundings, slices

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


class Convolution(Factored):
    """nn.Conv3d and transposed convolutions: each record's weight gradient is stored for the sum.

    Any padding, stride, dilation and groups. Padding that torch's convolution does not do itself
    (of one side only, circular, reflected, replicated) is done before it, under autograd.
    """

    layer: nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d

    def __init__(self, name: str, layer: nn.Module, views: int = 1):
        super().__init__(name, layer, views)
        settings = self.layer
        self.kernel, self.stride = settings.kernel_size, settings.stride
        self.dilation, self.groups = settings.dilation, settings.groups
        self.transposed, self.output_padding = settings.transposed, settings.output_padding
        # Pixels that are added before the convolution, as `F.pad` takes them.
        self.around: list[int] = []
        if settings.padding_mode == "zeros" and not isinstance(settings.padding, str):
            self.padding = tuple(map(int, settings.padding))
        else:
            self.around = settings._reversed_padding_repeated_twice
            self.padding = (0,) * len(self.kernel)

    def __call__(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """The output; `output_size` is refused."""
        if output_size is not None:
            raise InputError(f"layer {self.name}", "a call with output_size", "output_padding")
        if any(self.around):
            mode = self.layer.padding_mode
            x = F.pad(x, self.around, "constant" if mode == "zeros" else mode)
        return super().__call__(x)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The convolution."""
        return (
            torch.convolution(
                x,
                self.weights(),
                self.value_if_any("bias"),
                self.stride,
                self.padding,
                self.dilation,
                self.transposed,
                self.output_padding,
                self.groups,
            ),
        )

    def weights(self) -> Tensor:
        """The weight's values, with as many dimensions of space as the maps have."""
        return self.value("weight")

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores factors or per-record gradients, whichever costs less."""
        if "weight" in self.trainable:
            if self._keeps_factors(delta, x):
                self.inputs, self.delta = x, delta
            else:
                with exact():
                    self.record_gradients["weight"] = self._per_record(x, delta)
        if "bias" in self.trainable:
            self.record_gradients["bias"] = self.summed(delta.sum(tuple(range(2, delta.dim()))), 1)
        return self._input_gradient(delta, x) if needs_x else None

    def _keeps_factors(self, delta: Tensor, x: Tensor) -> bool:
        """Whether x and delta are stored, because per-record gradients would cost more."""
        return False

    def _per_record(self, x: Tensor, delta: Tensor) -> Tensor:
        """(records, *weight.shape): one call with a group per record, or a call per record."""
        weight, views = self.weights(), self.views
        records = len(x) // views
        positions = math.prod((x if self.transposed else delta).shape[2:])
        small = positions * views * weight.numel() < SMALL_CONVOLUTION
        if small or not clipping.may_look(x):
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
        return self._gradients(delta, x, self.weights(), "input")

    def _gradients(
        self, delta: Tensor, x: Tensor, weight: Tensor, of: str, records: int = 1
    ) -> Tensor:
        gradients = torch.ops.aten.convolution_backward(
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
        return gradients[0] if of == "input" else gradients[1].contiguous()


class Conv2d(Convolution):
    """nn.Conv2d.

    With few positions, norms follow from Gram matrices of patches and of output gradients; else
    from each record's weight gradient, which is stored for the sum.
    """

    def norms2(self, small: float = 0.0) -> Tensor:
        """||g_i||^2 = <patches patches^T, delta^T delta> where factors are stored."""
        total = super().norms2(small)
        if self.delta is None:
            return total
        return total + self.factored_norms2(small)

    def grams(self) -> tuple[Tensor, Tensor, int]:
        """Of patches and of output gradients."""
        images, delta = self.gradient_factors()
        inputs = patch_gram(images, self.kernel, self.stride, self.padding)
        outputs = gram(delta.flatten(2).transpose(1, 2))
        # Inner products of pixels, then sums over the kernel: of few pixels all at once, else over
        # its rows, its columns and the phases.
        roundings = sum(gram_roundings(maps.shape[1]) for maps in (images, delta))
        if few_pixels(images):
            roundings += math.prod(self.kernel)
        else:
            roundings += sum(self.kernel) + math.prod(map(min, self.kernel, self.stride))
        return inputs, outputs, roundings

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """The ordinary weight gradient of the scaled output gradients where factors are stored."""
        gradients = super().weighted(factors)
        if self.delta is not None:
            gradients["weight"] = self.weighted_factors(factors)
        return gradients

    def product(self, delta: Tensor, inputs: Tensor) -> Tensor:
        """The ordinary weight gradient."""
        return self._gradients(delta, inputs, self.weights(), "weight")

    def positions(self) -> int:
        """Positions of the output."""
        return math.prod(self.gradient_factors()[1].shape[2:])

    def pairs(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Patches and output gradients of these records."""
        inputs, delta = self.gradient_factors()
        return self._patches(inputs[rows]), delta[rows].flatten(2).transpose(1, 2)

    def in_weight_shape(self, gradient: Tensor) -> Tensor:
        """(..., out, height * width * in) in the shape of the weight."""
        into = self.weights().shape[1]
        return gradient.unflatten(-1, (*self.kernel, into)).movedim(-1, -3)

    def _patches(self, x: Tensor) -> Tensor:
        """What each output position sees of x: (records, positions, height * width * in)."""
        # Channels last: they are then read and written one after the other.
        x = x.contiguous(memory_format=torch.channels_last)
        x = F.pad(x, (self.padding[1], self.padding[1], self.padding[0], self.padding[0]))
        for dim in (0, 1):
            x = x.unfold(2 + dim, self.kernel[dim], self.stride[dim])
        return x.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)

    def _per_record(self, x: Tensor, delta: Tensor) -> Tensor:
        """As `Convolution._per_record`; on a GPU products of patches, where there are patches."""
        if clipping.may_look(delta) or self.groups > 1 or max(self.dilation) > 1:
            return super()._per_record(x, delta)
        weight, views = self.weights(), self.views
        positions = views * math.prod(delta.shape[2:])
        gradients = []
        for records in slices(len(x) // views, positions * weight[0].numel()):
            rows = slice(records.start * views, records.stop * views)
            patches = self._patches(x[rows])
            deltas = delta[rows].flatten(2).unflatten(0, (-1, views)).transpose(1, 2).flatten(2)
            products = torch.bmm(deltas, patches.view(-1, positions, patches.shape[2]))
            gradients.append(self.in_weight_shape(products))
        return torch.cat(gradients).contiguous()

    def _keeps_factors(self, delta: Tensor, x: Tensor) -> bool:
        if self.views > 1 or self.groups > 1 or max(self.dilation) > 1:
            return False
        if not clipping.may_look(delta):
            # By memory: in time there is little between them.
            return self.weights().numel() > x[0].numel() + delta[0].numel()
        into, out = x.shape[1], delta.shape[1]
        positions = math.prod(delta.shape[2:])
        products = positions * self.layer.weight.numel()
        if few_pixels(x):
            pixels = math.prod(x.shape[2:])
            pairs = pixels * (pixels + 1) // 2
            gram = pixels**2 * into + positions**2 * (out + pairs)
            return gram < FEW_PIXELS_SHARE * products
        phase = math.prod(
            size + (kernel - 1) // stride
            for size, kernel, stride in zip(delta.shape[2:], self.kernel, self.stride, strict=True)
        )
        phases = math.prod(map(min, self.kernel, self.stride))
        gram = phases * phase**2 * into + positions**2 * out
        return gram < GRAM_SHARE * products

    def _input_gradient(self, delta: Tensor, x: Tensor) -> Tensor:
        sides = [
            size - 1 - padding for size, padding in zip(self.kernel, self.padding, strict=True)
        ]
        if (
            x.device.type != "cpu"
            or (max(self.stride), max(self.dilation), self.groups) != (1, 1, 1)
            or min(sides) < 0
        ):
            return super()._input_gradient(delta, x)
        # The convolution with the kernel turned round: the same sums, a quarter faster.
        weight = self.weights().flip(2, 3).transpose(0, 1).contiguous()
        return F.conv2d(delta, weight, None, 1, sides)


class Conv1d(Conv2d):
    """nn.Conv1d, as a convolution of maps of height one."""

    def __init__(self, name: str, layer: nn.Module, views: int = 1):
        super().__init__(name, layer, views)
        self.kernel, self.stride = (1, *self.kernel), (1, *self.stride)
        self.padding, self.dilation = (0, *self.padding), (1, *self.dilation)
        self.output_padding = (0, *self.output_padding)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The convolution."""
        return (super().forward(x.unsqueeze(2))[0].squeeze(2),)

    def weights(self) -> Tensor:
        """The weight's values, (out, in, 1, length)."""
        return self.value("weight").unsqueeze(2)

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """As `Conv2d.backward`."""
        gradient = super().backward(delta.unsqueeze(2), x.unsqueeze(2), needs_x=needs_x)
        return None if gradient is None else gradient.squeeze(2)

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """As `Conv2d.weighted`, in the shape of the weight."""
        gradients = super().weighted(factors)
        if "weight" in gradients:
            gradients["weight"] = gradients["weight"].squeeze(2)
        return gradients


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
