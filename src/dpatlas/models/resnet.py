"""ResNet18 with GroupNorm for small images (He et al., 2016, with a stem for 32x32)."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from dpatlas.core.guard import checked, integer
from dpatlas.models.network import Network

GROUPS = 32
WIDTHS = (64, 128, 256, 512)


class Block(nn.Module):
    """Basic residual block: twice a 3x3 convolution and GroupNorm, ReLU between and after the sum.

    torchvision's block adds and activates in place, which autograd refuses behind a layer with a
    full backward hook, and such hooks are how other libraries take per-record gradients.
    """

    def __init__(self, into: int, out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.GroupNorm(GROUPS, out)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.GroupNorm(GROUPS, out)
        self.downsample = None
        if stride != 1 or into != out:
            shortcut = nn.Conv2d(into, out, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.GroupNorm(GROUPS, out))

    def forward(self, x: Tensor) -> Tensor:
        """(records, into, h, w) to (records, out, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.bn1(self.conv1(x)))
        return self.relu(shortcut + self.bn2(self.conv2(inner)))


@checked(outputs=integer(ge=1))
def resnet18(image_shape: Sequence[int] = (3, 32, 32), outputs: int = 10) -> Network:
    """ResNet18 with a 3x3 stem of stride 1, no max-pooling, and GroupNorm of 32 groups.

    The published stem would leave 8x8 positions of a 32x32 image to the first block. 32 groups are
    the default of Wu and He (2018) and divide all widths. Parameters have torchvision's names
    (`bn1` and so on hold GroupNorms), except that `fc` is `head`; 11.17 million with ten outputs.
    """
    stages = [
        (
            f"layer{index}",
            nn.Sequential(Block(into, out, 1 if index == 1 else 2), Block(out, out, 1)),
        )
        for index, (into, out) in enumerate(pairwise([WIDTHS[0], *WIDTHS]), start=1)
    ]
    return Network(
        [
            ("conv1", nn.Conv2d(image_shape[0], WIDTHS[0], 3, padding=1, bias=False)),
            ("bn1", nn.GroupNorm(GROUPS, WIDTHS[0])),
            ("relu", nn.ReLU()),
            *stages,
            ("avgpool", nn.AdaptiveAvgPool2d(1)),
            ("flatten", nn.Flatten()),
            ("head", nn.Linear(WIDTHS[-1], outputs)),
        ]
    )
