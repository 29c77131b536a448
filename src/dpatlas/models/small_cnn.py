"""Small convolutional networks: three for 8x8 images, and one for 32x32 to time steps on."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from torch import nn

from dpatlas.base.guard import checked, integer
from dpatlas.errors import InputError
from dpatlas.models.network import Network

# Convolution weights without the head: 23,184, 9,612 and 5,832.
SIZES: Mapping[str, Mapping[str, Any]] = {
    "s": {"channels": (16, 32, 64), "strides": (1, 2, 1), "pool": 2},
    "xs": {"channels": (12, 24, 32), "strides": (1, 2, 1)},
    "t": {"channels": (8, 16, 32), "strides": (2, 1, 1)},
}


@checked(pool=integer(ge=1), groups=integer(ge=1))
def small_cnn(
    channels: Sequence[int],
    image_shape: Sequence[int] = (1, 8, 8),
    outputs: int = 10,
    affine: bool = False,
    *,
    strides: Sequence[int],
    pool: int = 1,
    groups: int = 4,
) -> Network:
    """3x3 convolutions without biases, each with GroupNorm and ReLU; average pooling; a head.

    channels, strides: of each convolution, in order. affine: whether GroupNorm has parameters.
    pool: the pooled map has pool x pool positions, so the head takes channels[-1] pool^2 features.
    Input (records, *image_shape).

    Raises InputError for channels that `groups` does not divide, for strides of another number, and
    for a last map that cannot be cut into pool x pool equal cells.
    """
    if len(strides) != len(channels):
        raise InputError("strides", list(strides), f"{len(channels)} of them, one a convolution")
    parts: list[tuple[str, nn.Module]] = []
    layers = zip(pairwise([image_shape[0], *channels]), strides, strict=True)
    for index, ((into, out), stride) in enumerate(layers, start=1):
        if out % groups:
            raise InputError("channels", out, f"multiples of {groups}, the number of groups")
        parts += _convolution(index, into, out, stride, groups, affine)
    return Network(
        [
            *parts,
            ("pool", nn.AvgPool2d(_cell(image_shape[1:], strides, pool))),
            ("flatten", nn.Flatten()),
            ("head", nn.Linear(channels[-1] * pool**2, outputs)),
        ]
    )


small_cnn_s, small_cnn_xs, small_cnn_t = (partial(small_cnn, **layout) for layout in SIZES.values())


def bench_cnn(image_shape: Sequence[int] = (3, 32, 32), outputs: int = 10) -> Network:
    """Six 3x3 convolutions of 32, 32, 64, 64, 128 and 128 channels, halved twice by pooling.

    The plain network one would write for CIFAR-10: 0.29 million parameters, ReLU, GroupNorm of 16
    groups with parameters, one average over positions before the head.
    """
    parts: list[tuple[str, nn.Module]] = []
    for index, (into, out) in enumerate(pairwise([image_shape[0], 32, 32, 64, 64, 128, 128]), 1):
        if index in (3, 5):
            parts.append((f"pool{index // 2}", nn.AvgPool2d(2)))
        parts += _convolution(index, into, out, 1, 16, True)
    return Network(
        [
            *parts,
            ("pool", nn.AdaptiveAvgPool2d(1)),
            ("flatten", nn.Flatten()),
            ("head", nn.Linear(128, outputs)),
        ]
    )


def _convolution(
    index: int, into: int, out: int, stride: int, groups: int, affine: bool
) -> list[tuple[str, nn.Module]]:
    return [
        (f"conv{index}", nn.Conv2d(into, out, 3, stride, padding=1, bias=False)),
        (f"norm{index}", nn.GroupNorm(groups, out, affine=affine)),
        (f"relu{index}", nn.ReLU()),
    ]


def _cell(size: Sequence[int], strides: Sequence[int], pool: int) -> tuple[int, int]:
    """Height and width of a pooling cell, for images of `size`."""
    height, width = size
    for stride in strides:
        height, width = -(-height // stride), -(-width // stride)
    if height % pool or width % pool:
        raise InputError("pool", pool, f"a number that divides the last map, {height} x {width}")
    return height // pool, width // pool
