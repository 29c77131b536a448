"""Networks as published with weights for ImageNet, for records of any size.

BatchNorm in evaluation mode is a fixed affine map of each channel. It is folded into the
convolution before it: what is left computes the same, keeps no statistics and mixes no records.

The definitions are not torchvision's, which work in place (see `resnet.Block`), and whose import
would nearly double the seconds that a job takes to start. An import compares the two networks.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.fx.experimental.optimization import fuse
from torch.nn.functional import interpolate

from dpatlas.base.networks import PUBLISHED
from dpatlas.errors import InputError
from dpatlas.models.mobilenet import HIDDEN, LARGE, STEM, classifier, features
from dpatlas.models.network import Network
from dpatlas.models.resnet import EXPANSION, WIDTHS, Bottleneck, basic_stages

# The networks take grey levels from 0 to 255 as shares of 255; in the form of a prepared set's
# manifest.
PREPROCESSING = {"multiply": 1, "subtract": 0, "divide": 255, "norm": None}
# The same for a network that is told so, of grey levels from -1 to 1.
SYMMETRIC = {"multiply": 2, "subtract": 255, "divide": 255, "norm": None}
SIDE = 224
# Mean and standard deviation of the channels of ImageNet's training images: public constants that
# are published with the weights.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Blocks in each stage of ResNet50.
DEPTHS = (3, 4, 6, 3)
# Records at a time without autograd: the activations of one take some 10 to 100 MB.
SLICE = 32


class ImageNetInput(nn.Module):
    """Shares of the grey levels to what the network was trained on.

    (records, 1 or 3, h, w) from 0 to 1, or if symmetric from -1 to 1, to (records, 3, side, side):
    grey is repeated, sides are stretched by bilinear interpolation, channels are standardised. The
    transforms of torchvision compute the same, but would make every job import torchvision.
    """

    def __init__(self, side: int = SIDE, symmetric: bool = False):
        super().__init__()
        self.sides, self.symmetric = (side, side), symmetric

    def forward(self, x: Tensor) -> Tensor:
        """Each record by itself."""
        if x.shape[2:] != self.sides:
            x = interpolate(x, self.sides, mode="bilinear", antialias=True)
        if self.symmetric:
            x = (x + 1) / 2
        mean, deviation = (x.new_tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
        return (x - mean) / deviation


class Sliced(nn.Sequential):
    """Parts in sequence; without autograd `SLICE` records at a time, to bound the memory."""

    def forward(self, x: Tensor) -> Tensor:
        """The last part's output for all records."""
        run = super().forward
        if torch.is_grad_enabled():
            return run(x)
        return torch.cat([run(rows) for rows in x.split(SLICE)])


def on_images(
    image_shape: Sequence[int],
    parts: Iterable[tuple[str, nn.Module]],
    images: ImageNetInput | None = None,
) -> Network:
    """The parts, of which the last is the head, behind `ImageNetInput`, a few records at a time.

    Raises InputError for images with other than 1 or 3 channels.
    """
    if image_shape[0] not in (1, 3):
        raise InputError("image_shape", f"{image_shape[0]} channels", "1 or 3 channels")
    *body, head = parts
    named = OrderedDict([("input", images or ImageNetInput()), *body])
    return Network([("body", Sliced(named)), head])


def renamed(published: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Every tensor under its new name, by patterns of layers; one that fits no pattern stays."""
    found = {}
    for name, value in published.items():
        for theirs, ours in names.items():
            if match := re.fullmatch(theirs + r"((?:\.\w+)?)", name):
                name = match.expand(ours) + match[match.re.groups]
                break
        found[name] = value
    return found


# Layers before the head that have other names here than in torchvision.
RENAMED = {"classifier.0": "hidden", "classifier.1": "hidden1", "classifier.4": "hidden2"}


def imagenet_resnet18(image_shape: Sequence[int] = (1, 224, 224), outputs: int = 1000) -> Network:
    """ResNet18 (He et al., 2016) with the published stem, its BatchNorms folded away; 512 features.

    Takes grey or colour images as shares of their grey levels (`PREPROCESSING`); 11.68 million
    parameters with 1,000 outputs. Not meant to be trained from initial weights: nothing normalises
    activations.

    Raises InputError for images with other than 1 or 3 channels.
    """
    return _resnet(image_shape, outputs, basic_stages(None), WIDTHS[-1])


def imagenet_resnet50(image_shape: Sequence[int] = (3, 224, 224), outputs: int = 1000) -> Network:
    """ResNet50 as `imagenet_resnet18`: 2,048 features, 25.53 million parameters.

    The stride is on a block's 3x3 convolution, as in the network that the weights are of.
    """
    into, stages = WIDTHS[0], []
    for index, (inner, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True), start=1):
        first = Bottleneck(into, inner, 1 if index == 1 else 2)
        into = EXPANSION * inner
        others = (Bottleneck(into, inner, 1) for _ in range(depth - 1))
        stages.append((f"layer{index}", nn.Sequential(first, *others)))
    return _resnet(image_shape, outputs, stages, into)


def imagenet_mobilenet_v3(
    image_shape: Sequence[int] = (3, 224, 224), outputs: int = 1000
) -> Network:
    """MobileNet-v3 large (Howard et al., 2019) without dropout, its BatchNorms folded away.

    1,280 features, 5.47 million parameters.
    """
    parts = [("features", features(3, STEM, 2, LARGE, norm=None))]
    return on_images(image_shape, parts + classifier(LARGE, HIDDEN, outputs))


def folded(model: str, published: nn.Module) -> dict[str, Tensor]:
    """The weights of our network `model` from torchvision's, which is in evaluation mode.

    Every BatchNorm is folded into the convolution before it.
    """
    head = PUBLISHED[model].head
    # A copy: the published network itself stays for comparison.
    layers = fuse(published).state_dict()
    weights = {}
    for name, value in layers.items():
        layer, _, parameter = name.rpartition(".")
        ours = "head" if layer == head else f"body.{RENAMED.get(layer, layer)}"
        weights[f"{ours}.{parameter}"] = value.detach()
    return weights


def _resnet(
    image_shape: Sequence[int], outputs: int, stages: Sequence[tuple[str, nn.Module]], width: int
) -> Network:
    """The published stem, the stages, pooling, and a head on `width` features."""
    parts = [
        ("conv1", nn.Conv2d(3, WIDTHS[0], 7, 2, padding=3)),
        ("relu", nn.ReLU()),
        ("maxpool", nn.MaxPool2d(3, 2, padding=1)),
        *stages,
        ("avgpool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
        ("head", nn.Linear(width, outputs)),
    ]
    return on_images(image_shape, parts)
