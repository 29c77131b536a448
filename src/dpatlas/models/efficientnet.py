"""EfficientNet-Lite0 as published with weights for ImageNet (Tan and Le, 2019, and its Lite form).

No squeeze-and-excitation, ReLU6 throughout. The weights come from TensorFlow, whose convolutions
with a stride pad even sides by one pixel less on the left and top than on the right and bottom.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from dpatlas.base.guard import checked, integer
from dpatlas.errors import InputError
from dpatlas.models.imagenet import SIDE, ImageNetInput, on_images, renamed
from dpatlas.models.network import Network
from dpatlas.models.resnet import Norm

STEM, LAST, FEATURES = 32, 320, 1280
NORM_EPSILON = 1e-3
# Strides divide a side by this.
SMALLEST = 32


class Stage(NamedTuple):
    """Blocks of equal width: kernel size, factor of widening, channels, first stride, number."""

    kernel: int
    widening: int
    out: int
    stride: int
    blocks: int


# Table 1 of Tan and Le (2019).
STAGES = (
    Stage(3, 1, 16, 1, 1),
    Stage(3, 6, 24, 2, 2),
    Stage(5, 6, 40, 2, 2),
    Stage(3, 6, 80, 2, 3),
    Stage(5, 6, 112, 1, 3),
    Stage(5, 6, 192, 2, 4),
    Stage(3, 6, LAST, 1, 1),
)

# From the file's names of layers to ours, as patterns.
NAMES = {
    "_fc": "head",
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "last.conv",
    "_bn1": "last.norm",
    r"_blocks\.(\d+)\._(expand|depthwise|project)_conv": r"blocks.\1.block.\2.conv",
    r"_blocks\.(\d+)\._bn0": r"blocks.\1.block.expand.norm",
    r"_blocks\.(\d+)\._bn1": r"blocks.\1.block.depthwise.norm",
    r"_blocks\.(\d+)\._bn2": r"blocks.\1.block.project.norm",
}


class StridePadding(nn.Module):
    """Pads an even side for a convolution with stride 2, as TensorFlow's `same` does."""

    def __init__(self, kernel: int):
        super().__init__()
        self.before, self.after = (kernel - 2) // 2, (kernel - 1) // 2

    def forward(self, x: Tensor) -> Tensor:
        """(records, channels, h, w) to the same with kernel - 2 more rows and columns."""
        return pad(x, (self.before, self.after, self.before, self.after))


class EfficientNetBlock(nn.Module):
    """Inverted residual: widened by 1x1, one channel at a time, narrowed by 1x1.

    The input is added where the shape allows it.
    """

    def __init__(self, into: int, stage: Stage, stride: int, norm: Norm):
        super().__init__()
        wide = stage.widening * into
        parts = {} if stage.widening == 1 else {"expand": _convolution(into, wide, norm)}
        parts["depthwise"] = _convolution(wide, wide, norm, stage.kernel, stride, groups=wide)
        parts["project"] = _convolution(wide, stage.out, norm, activation=None)
        self.block = nn.Sequential(OrderedDict(parts))
        self.adds = stride == 1 and into == stage.out

    def forward(self, x: Tensor) -> Tensor:
        """(records, into, h, w) to (records, out, h / stride, w / stride)."""
        narrowed: Tensor = self.block(x)
        return x + narrowed if self.adds else narrowed


@checked(side=integer(ge=SMALLEST), inputs=integer(ge=0))
def imagenet_efficientnet_lite0(
    image_shape: Sequence[int] = (3, 224, 224),
    outputs: int = 1000,
    side: int = SIDE,
    inputs: int = 0,
    symmetric: bool = False,
) -> Network:
    """EfficientNet-Lite0 without dropout, its BatchNorms folded away; 4.63 million parameters.

    side: images are stretched to so many pixels, a multiple of 32. symmetric: whether grey levels
    go from -1 to 1, in place of 0 to 1. inputs: of the head, to which
    the 1,280 features are mapped by a constant matrix (`principal_directions` of the published
    head); 0 for the features themselves.

    Raises InputError for images with other than 1 or 3 channels, a side that is no multiple of 32,
    and more inputs than features.
    """
    if side % SMALLEST:
        raise InputError("side", side, f"a multiple of {SMALLEST}")
    if inputs > FEATURES:
        raise InputError("inputs", inputs, f"0 to {FEATURES}")
    parts = _parts(norm=None)
    if inputs:
        parts.append(("directions", nn.Linear(FEATURES, inputs, bias=False)))
    parts.append(("head", nn.Linear(inputs or FEATURES, outputs)))
    return on_images(image_shape, parts, ImageNetInput(side, symmetric))


def with_norms(outputs: int) -> nn.Sequential:
    """The published network with its BatchNorms, for standardised images (records, 3, h, w)."""
    parts = _parts(lambda channels: nn.BatchNorm2d(channels, NORM_EPSILON))
    return nn.Sequential(OrderedDict([*parts, ("head", nn.Linear(FEATURES, outputs))]))


def named_as_ours(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The published tensors under the names that they have in `with_norms`."""
    return renamed(published, NAMES)


def principal_directions(head: Tensor, directions: int) -> Tensor:
    """(directions, features): those in which the head's weights (classes, features) vary most.

    Right singular vectors of the weights less their mean over classes, which no softmax depends on;
    the sign makes each vector's largest entry positive.
    """
    weights = head.double() - head.double().mean(0)
    vectors = torch.linalg.svd(weights, full_matrices=False).Vh[:directions]
    largest = vectors.gather(1, vectors.abs().argmax(1, keepdim=True))
    return (vectors * largest.sign()).to(head.dtype)


def _convolution(
    into: int,
    out: int,
    norm: Norm,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    activation: Callable[[], nn.Module] | None = nn.ReLU6,
) -> nn.Sequential:
    """A convolution that keeps the size but for its stride, then norm and activation if any."""
    parts: dict[str, nn.Module] = {"pad": StridePadding(kernel)} if stride > 1 else {}
    shape = into, out, kernel, stride, 0 if parts else kernel // 2
    parts["conv"] = nn.Conv2d(*shape, groups=groups, bias=norm is None)
    if norm is not None:
        parts["norm"] = norm(out)
    if activation is not None:
        parts["activation"] = activation()
    return nn.Sequential(OrderedDict(parts))


def _parts(norm: Norm) -> list[tuple[str, nn.Module]]:
    """All up to the features, by name."""
    blocks, into = nn.Sequential(), STEM
    for stage in STAGES:
        for number in range(stage.blocks):
            blocks.append(EfficientNetBlock(into, stage, stage.stride if number == 0 else 1, norm))
            into = stage.out
    return [
        ("stem", _convolution(3, STEM, norm, 3, 2)),
        ("blocks", blocks),
        ("last", _convolution(LAST, FEATURES, norm)),
        ("avgpool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
    ]
