"""ResNet18 with GroupNorm for small images (He et al., 2016), and residual blocks with any norm."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn

from dpatlas.models.network import Network

GROUPS = 32
WIDTHS = (64, 128, 256, 512)
# Output channels of a bottleneck block for each of its inner channels.
EXPANSION = 4
# Makes the norm behind a convolution of so many channels; None gives the convolution a bias.
Norm = Callable[[int], nn.Module] | None


class ResidualBlock(nn.Module):
    """Basic residual block: twice a 3x3 convolution and norm, ReLU between and after the sum.

    Not torchvision's block: that one adds and activates in place, which autograd refuses behind a
    layer with a full backward hook, and such hooks are how other libraries take per-record
    gradients.
    """

    def __init__(self, into: int, out: int, stride: int, norm: Norm):
        super().__init__()
        self.conv1, self.bn1 = _convolution(into, out, 3, stride, norm)
        self.relu = nn.ReLU()
        self.conv2, self.bn2 = _convolution(out, out, 3, 1, norm)
        self.downsample = _shortcut(into, out, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """(records, into, h, w) to (records, out, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.bn1(self.conv1(x)))
        return self.relu(shortcut + self.bn2(self.conv2(inner)))


class Bottleneck(nn.Module):
    """Residual block of ResNet50: 1x1, 3x3 and 1x1 convolutions, the middle one with the stride.

    Without norms, for the same reason not torchvision's.
    """

    def __init__(self, into: int, inner: int, stride: int):
        super().__init__()
        out = EXPANSION * inner
        self.conv1 = nn.Conv2d(into, inner, 1)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1)
        self.conv3 = nn.Conv2d(inner, out, 1)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(into, out, stride, None)

    def forward(self, x: Tensor) -> Tensor:
        """(records, into, h, w) to (records, 4 inner, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.conv2(self.relu(self.conv1(x))))
        return self.relu(shortcut + self.conv3(inner))


def resnet18(image_shape: Sequence[int] = (3, 32, 32), outputs: int = 10) -> Network:
    """ResNet18 with a 3x3 stem of stride 1, no max-pooling, and GroupNorm of 32 groups.

    The published stem would leave 8x8 positions of a 32x32 image to the first block. 32 groups are
    the default of Wu and He (2018) and divide all widths. Parameters have torchvision's names
    (`bn1` and so on hold GroupNorms), except that `fc` is `head`; 11.17 million with ten outputs.
    """
    stem, norm = _convolution(image_shape[0], WIDTHS[0], 3, 1, _group_norm)
    return Network(
        [
            ("conv1", stem),
            ("bn1", norm),
            ("relu", nn.ReLU()),
            *basic_stages(_group_norm),
            ("avgpool", nn.AdaptiveAvgPool2d(1)),
            ("flatten", nn.Flatten()),
            ("head", nn.Linear(WIDTHS[-1], outputs)),
        ]
    )


def basic_stages(norm: Norm) -> list[tuple[str, nn.Module]]:
    """ResNet18's four stages of two basic blocks; all but the first halve the resolution."""
    stages: list[tuple[str, nn.Module]] = []
    for index, (into, out) in enumerate(pairwise([WIDTHS[0], *WIDTHS]), start=1):
        first = ResidualBlock(into, out, 1 if index == 1 else 2, norm)
        stages.append((f"layer{index}", nn.Sequential(first, ResidualBlock(out, out, 1, norm))))
    return stages


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(GROUPS, channels)


def _convolution(
    into: int, out: int, kernel: int, stride: int, norm: Norm
) -> tuple[nn.Conv2d, nn.Module]:
    convolution = nn.Conv2d(into, out, kernel, stride, padding=kernel // 2, bias=norm is None)
    return convolution, nn.Identity() if norm is None else norm(out)


def _shortcut(into: int, out: int, stride: int, norm: Norm) -> nn.Sequential | None:
    """A 1x1 convolution and its norm where a block changes the shape."""
    if stride == 1 and into == out:
        return None
    convolution, scaled = _convolution(into, out, 1, stride, norm)
    return nn.Sequential(convolution, scaled) if norm else nn.Sequential(convolution)
