"""MobileNet-v3 large (Howard et al., 2019) with GroupNorm in place of BatchNorm."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from dpatlas.base.guard import checked, integer
from dpatlas.errors import InputError
from dpatlas.models.network import Network
from dpatlas.models.resnet import Norm

STEM, HIDDEN = 16, 1280
# Every width is a multiple of this.
MULTIPLE = 8
# In images with a smaller side, neither the stem nor the first block with a stride reduces the map.
SMALL = 64


class MobileNetRow(NamedTuple):
    """A block: kernel size, widened and resulting channels, whether it squeezes, h-swish, stride.

    Without h-swish it activates by ReLU.
    """

    kernel: int
    widened: int
    out: int
    squeezes: bool
    hard: bool
    stride: int


# The blocks of table 1 of Howard et al. (2019).
LARGE = (
    MobileNetRow(3, 16, 16, False, False, 1),
    MobileNetRow(3, 64, 24, False, False, 2),
    MobileNetRow(3, 72, 24, False, False, 1),
    MobileNetRow(5, 72, 40, True, False, 2),
    MobileNetRow(5, 120, 40, True, False, 1),
    MobileNetRow(5, 120, 40, True, False, 1),
    MobileNetRow(3, 240, 80, False, True, 2),
    MobileNetRow(3, 200, 80, False, True, 1),
    MobileNetRow(3, 184, 80, False, True, 1),
    MobileNetRow(3, 184, 80, False, True, 1),
    MobileNetRow(3, 480, 112, True, True, 1),
    MobileNetRow(3, 672, 112, True, True, 1),
    MobileNetRow(5, 672, 160, True, True, 2),
    MobileNetRow(5, 960, 160, True, True, 1),
    MobileNetRow(5, 960, 160, True, True, 1),
)
# Position of the first block with a stride.
FIRST_STRIDE = 1


class SqueezeExcitation(nn.Module):
    """Scales each channel by a number from 0 to 1, a function of all channels' means."""

    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.relu = nn.ReLU()
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """(records, channels, h, w) to the same."""
        return self.gate(self.fc2(self.relu(self.fc1(self.avgpool(x))))) * x


class MobileNetBlock(nn.Module):
    """Inverted residual: widened by 1x1, one channel at a time, squeezed, narrowed by 1x1.

    The input is added where the shape allows it. Nothing is added or activated in place, as
    torchvision's block does it (see `resnet.Block`).
    """

    def __init__(self, into: int, row: MobileNetRow, norm: Norm):
        super().__init__()
        activation = nn.Hardswish if row.hard else nn.ReLU
        parts: list[nn.Module] = []
        if row.widened != into:
            parts.append(_convolution(into, row.widened, norm, activation))
        depthwise = row.kernel, row.stride, row.widened
        parts.append(_convolution(row.widened, row.widened, norm, activation, *depthwise))
        if row.squeezes:
            parts.append(SqueezeExcitation(row.widened, rounded(row.widened // 4)))
        parts.append(_convolution(row.widened, row.out, norm, None))
        self.block = nn.Sequential(*parts)
        self.adds = row.stride == 1 and into == row.out

    def forward(self, x: Tensor) -> Tensor:
        """(records, into, h, w) to (records, out, h / stride, w / stride)."""
        narrowed = self.block(x)
        return x + narrowed if self.adds else narrowed


@checked(groups=integer(ge=1), narrower=integer(ge=1))
def mobilenet_v3(
    image_shape: Sequence[int] = (3, 32, 32),
    outputs: int = 10,
    groups: int = MULTIPLE,
    narrower: int = 1,
) -> Network:
    """MobileNet-v3 large without dropout; 1,280 features, 4.21 million parameters with ten outputs.

    groups: of every norm; 8 divides all widths. narrower: all widths are divided by
    it, to multiples of 8. Images below 64 pixels a side skip the first two strides, so that 32x32
    ends at 4x4 positions, not at one. Parameters have torchvision's names (the `1` of a
    convolution's pair holds a GroupNorm), except that `features` is `body`, `classifier.0` is
    `hidden` and `classifier.3` is `head`.

    Raises InputError for groups that do not divide 8.
    """
    if MULTIPLE % groups:
        raise InputError("groups", groups, f"a divisor of {MULTIPLE}")
    early = 1 if min(image_shape[1:]) < SMALL else 2
    rows = [
        row._replace(widened=rounded(row.widened / narrower), out=rounded(row.out / narrower))
        for row in LARGE
    ]
    rows[FIRST_STRIDE] = rows[FIRST_STRIDE]._replace(stride=early)
    body = features(
        image_shape[0],
        rounded(STEM / narrower),
        early,
        rows,
        lambda channels: nn.GroupNorm(groups, channels),
    )
    return Network([("body", body), *classifier(rows, rounded(HIDDEN / narrower), outputs)])


def features(
    channels: int, stem: int, stride: int, rows: Sequence[MobileNetRow], norm: Norm
) -> nn.Sequential:
    """All up to the pooling: a stem of that stride, the blocks, and six times as many channels."""
    parts: list[nn.Module] = [_convolution(channels, stem, norm, nn.Hardswish, 3, stride)]
    into = stem
    for row in rows:
        parts.append(MobileNetBlock(into, row, norm))
        into = row.out
    parts.append(_convolution(into, 6 * into, norm, nn.Hardswish))
    return nn.Sequential(*parts)


def classifier(
    rows: Sequence[MobileNetRow], hidden: int, outputs: int
) -> list[tuple[str, nn.Module]]:
    """The named parts behind `features`: pooling, a hidden layer, and the head."""
    return [
        ("avgpool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
        ("hidden", nn.Linear(6 * rows[-1].out, hidden)),
        ("hardswish", nn.Hardswish()),
        ("head", nn.Linear(hidden, outputs)),
    ]


def rounded(width: float) -> int:
    """The nearest multiple of 8 that is not more than a tenth below `width`, 8 at least."""
    nearest = max(MULTIPLE, int(width + MULTIPLE / 2) // MULTIPLE * MULTIPLE)
    return nearest + MULTIPLE if nearest < 0.9 * width else nearest


def _convolution(
    into: int,
    out: int,
    norm: Norm,
    activation: Callable[[], nn.Module] | None,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
) -> nn.Sequential:
    """A convolution that keeps the size but for its stride, then norm and activation if any."""
    shape = into, out, kernel, stride, kernel // 2
    parts: list[nn.Module] = [nn.Conv2d(*shape, groups=groups, bias=norm is None)]
    if norm is not None:
        parts.append(norm(out))
    if activation is not None:
        parts.append(activation())
    return nn.Sequential(*parts)
