"""Wide residual networks with GroupNorm in place of BatchNorm (Zagoruyko and Komodakis, 2016).

torchvision has none: its wide ResNets are bottleneck networks for ImageNet.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from dpatlas.base.guard import checked, integer
from dpatlas.errors import InputError
from dpatlas.models.network import Network

STEM = 16


class WideBlock(nn.Module):
    """Pre-activation residual block: twice GroupNorm, ReLU and a 3x3 convolution.

    Where the shape changes, the shortcut is a 1x1 convolution of the first activation.
    """

    def __init__(self, into: int, out: int, stride: int, groups: int):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, into)
        self.conv1 = nn.Conv2d(into, out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.relu = nn.ReLU()
        changes = stride != 1 or into != out
        self.shortcut = nn.Conv2d(into, out, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """(records, into, h, w) to (records, out, h / stride, w / stride)."""
        active = self.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        return shortcut + self.conv2(self.relu(self.norm2(self.conv1(active))))


@checked(depth=integer(ge=10), widen=integer(ge=1), groups=integer(ge=1), stem_stride=integer(ge=1))
def wide_resnet(
    depth: int = 16,
    widen: int = 4,
    image_shape: Sequence[int] = (3, 32, 32),
    outputs: int = 10,
    groups: int = 16,
    stem_stride: int = 1,
) -> Network:
    """WRN-`depth`-`widen`: a stem of 16 channels, three stages of (depth - 4) / 6 blocks, a head.

    Stages have 16, 32 and 64 times `widen` channels at full, half and quarter resolution. WRN-16-4
    has 2.75 million parameters. 16 groups, as private training of these networks uses since De et
    al. (2022), divide every width. With a stem_stride of 2 every stage has half the height and
    width, and a pass costs a quarter.

    Raises InputError for a depth that is not 6 n + 4 and for groups that do not divide 16.
    """
    if (depth - 4) % 6:
        raise InputError("depth", depth, "6 n + 4 for a whole number n: 10, 16, 22, ...")
    if STEM % groups:
        raise InputError("groups", groups, f"a divisor of the stem's {STEM} channels")
    widths = [STEM, *(STEM * widen * factor for factor in (1, 2, 4))]
    stages = []
    for index, (into, out) in enumerate(pairwise(widths), start=1):
        first = WideBlock(into, out, 1 if index == 1 else 2, groups)
        others = [WideBlock(out, out, 1, groups) for _ in range((depth - 4) // 6 - 1)]
        stages.append((f"stage{index}", nn.Sequential(first, *others)))
    return Network(
        [
            ("stem", nn.Conv2d(image_shape[0], STEM, 3, stem_stride, padding=1, bias=False)),
            *stages,
            ("norm", nn.GroupNorm(groups, widths[-1])),
            ("relu", nn.ReLU()),
            ("pool", nn.AdaptiveAvgPool2d(1)),
            ("flatten", nn.Flatten()),
            ("head", nn.Linear(widths[-1], outputs)),
        ]
    )


wrn10_1 = partial(wide_resnet, 10, 1)
wrn10_2_stride2 = partial(wide_resnet, 10, 2, stem_stride=2)
wrn16_1 = partial(wide_resnet, 16, 1)
wrn16_4 = partial(wide_resnet, 16, 4)
