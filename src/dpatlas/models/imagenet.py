"""Networks as published with weights for ImageNet, for records of any size.

BatchNorm in evaluation mode is a fixed affine map of each channel. It is folded into the
convolution before it: what is left computes the same, keeps no statistics and mixes no records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.utils.fusion import fuse_conv_bn_weights

from dpatlas.core.guard import checked, integer
from dpatlas.errors import InputError
from dpatlas.models.mobilenet import HIDDEN, LARGE, STEM, classifier, features
from dpatlas.models.network import Network

# What its inputs are: grey levels from 0 to 255 as shares of 255, as prepared sets say it.
PREPROCESSING = {"multiply": 1, "subtract": 0, "divide": 255, "norm": None}
SIDE = 224
# Of the channels of ImageNet's training images: public constants, published with the weights.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WIDTHS = (64, 128, 256, 512)
# Of ResNet50's blocks: outputs per inner channel, and blocks of a stage.
EXPANSION, DEPTHS = 4, (3, 4, 6, 3)
# Records at a time without autograd: the activations of one take some 10 to 100 MB.
SLICE = 32


class ImageNetInput(nn.Module):
    """Shares of the grey levels to what the network was trained on.

    (records, 1 or 3, h, w) from 0 to 1 -> (records, 3, 224, 224): grey is repeated, sides are
    stretched by bilinear interpolation, channels are standardised.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Each record by itself."""
        if x.shape[2:] != (SIDE, SIDE):
            x = interpolate(x, (SIDE, SIDE), mode="bilinear", antialias=True)
        mean, deviation = (x.new_tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
        return (x - mean) / deviation


class Block(nn.Module):
    """Basic residual block: two 3x3 convolutions, ReLU between and after the sum."""

    def __init__(self, into: int, out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, padding=1)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        changes = stride != 1 or into != out
        self.downsample = nn.Conv2d(into, out, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """(records, into, h, w) to (records, out, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(shortcut + self.conv2(self.relu(self.conv1(x))))


class Bottleneck(nn.Module):
    """Residual block of ResNet50: 1x1, 3x3 and 1x1 convolutions, the middle one with the stride."""

    def __init__(self, into: int, inner: int, stride: int):
        super().__init__()
        out = EXPANSION * inner
        self.conv1 = nn.Conv2d(into, inner, 1)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1)
        self.conv3 = nn.Conv2d(inner, out, 1)
        self.relu = nn.ReLU()
        changes = stride != 1 or into != out
        self.downsample = nn.Conv2d(into, out, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """(records, into, h, w) to (records, 4 inner, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.conv2(self.relu(self.conv1(x))))
        return self.relu(shortcut + self.conv3(inner))


class Sliced(nn.Sequential):
    """Parts in sequence; without autograd `SLICE` records at a time, for memory's sake."""

    def forward(self, x: Tensor) -> Tensor:
        """The last part's output for all records."""
        run = super().forward
        if torch.is_grad_enabled():
            return run(x)
        return torch.cat([run(rows) for rows in x.split(SLICE)])


def on_images(
    image_shape: Sequence[int], parts: Sequence[tuple[str, nn.Module]], head: nn.Linear
) -> Network:
    """The parts behind `ImageNetInput`, a few records at a time, and the head.

    Raises InputError for images with other than 1 or 3 channels.
    """
    if image_shape[0] not in (1, 3):
        raise InputError("image_shape", f"{image_shape[0]} channels", "1 or 3 channels")
    body = Sliced()
    for name, part in [("input", ImageNetInput()), *parts]:
        body.add_module(name, part)
    return Network([("body", body), ("head", head)])


@dataclass(frozen=True)
class Origin:
    """torchvision's network behind one of ours.

    name: its function's. head: path of its last layer. epsilon: what its BatchNorms add to a
    variance. classifies: whether the published weights have that layer.
    """

    name: str
    head: str = "fc"
    epsilon: float = 1e-5
    classifies: bool = True


ORIGINS = {
    "imagenet-resnet18": Origin("resnet18"),
    "imagenet-resnet50": Origin("resnet50"),
    "imagenet-mobilenet-v3": Origin("mobilenet_v3_large", head="classifier.3", epsilon=1e-3),
    "imagenet-alexnet": Origin("alexnet", head="classifier.6"),
    "moco-v2-resnet50": Origin("resnet50", classifies=False),
    "moco-v3-resnet50": Origin("resnet50", classifies=False),
}
# Of what lies before the head: theirs and ours, where the names differ.
RENAMED = {
    "downsample.0": "downsample",
    "classifier.0": "hidden",
    "classifier.1": "hidden1",
    "classifier.4": "hidden2",
}


@checked(outputs=integer(ge=1))
def imagenet_resnet18(image_shape: Sequence[int] = (1, 224, 224), outputs: int = 1000) -> Network:
    """ResNet18 (He et al., 2016) with the published stem, its BatchNorms folded away; 512 features.

    Takes grey or colour images as shares of their grey levels (`PREPROCESSING`); 11.68 million
    parameters with 1,000 outputs. Not meant to be trained from initial weights: nothing normalises
    activations.

    Raises InputError for images with other than 1 or 3 channels.
    """
    stages = [
        nn.Sequential(Block(into, out, 1 if out == WIDTHS[0] else 2), Block(out, out, 1))
        for into, out in pairwise([WIDTHS[0], *WIDTHS])
    ]
    return _resnet(image_shape, outputs, stages, WIDTHS[-1])


@checked(outputs=integer(ge=1))
def imagenet_resnet50(image_shape: Sequence[int] = (3, 224, 224), outputs: int = 1000) -> Network:
    """ResNet50 as `imagenet_resnet18`: 2,048 features, 25.53 million parameters.

    The stride is on a block's 3x3 convolution, as in the network that the weights are of.
    """
    into, stages = WIDTHS[0], []
    for inner, depth in zip(WIDTHS, DEPTHS, strict=True):
        first = Bottleneck(into, inner, 1 if inner == WIDTHS[0] else 2)
        into = EXPANSION * inner
        stages.append(nn.Sequential(first, *(Bottleneck(into, inner, 1) for _ in range(depth - 1))))
    return _resnet(image_shape, outputs, stages, into)


@checked(outputs=integer(ge=1))
def imagenet_mobilenet_v3(
    image_shape: Sequence[int] = (3, 224, 224), outputs: int = 1000
) -> Network:
    """MobileNet-v3 large (Howard et al., 2019) as `imagenet_resnet18`, without its dropout.

    1,280 features, 5.47 million parameters.
    """
    *body, head = [
        ("features", features(3, STEM, 2, LARGE, norm=None)),
        *classifier(LARGE, HIDDEN, outputs),
    ]
    return on_images(image_shape, body, cast(nn.Linear, head[1]))


def folded(model: str, published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of our network `model` from a state dict of its origin.

    A BatchNorm follows the convolution that it is folded into.
    """
    origin = ORIGINS[model]
    layers = list(dict.fromkeys(entry.rpartition(".")[0] for entry in published))
    weights = {}
    for layer, following in pairwise([*layers, ""]):
        if f"{layer}.running_var" in published:
            continue
        weight, bias = published[f"{layer}.weight"], published.get(f"{layer}.bias")
        if f"{following}.running_var" in published:
            names = ("running_mean", "running_var", "weight", "bias")
            mean, variance, scale, shift = (published[f"{following}.{name}"] for name in names)
            weight, bias = fuse_conv_bn_weights(
                weight, bias, mean, variance, origin.epsilon, scale, shift
            )
        for name, value in (("weight", weight), ("bias", bias)):
            if value is not None:
                weights[f"{_place(layer, origin.head)}.{name}"] = value.detach()
    return weights


def _place(layer: str, head: str) -> str:
    if layer == head:
        return "head"
    for theirs, ours in RENAMED.items():
        layer = layer.replace(theirs, ours)
    return f"body.{layer}"


def _resnet(
    image_shape: Sequence[int], outputs: int, stages: Sequence[nn.Module], width: int
) -> Network:
    """The published stem, the stages, pooling, and a head on `width` features."""
    parts = [
        ("conv1", nn.Conv2d(3, WIDTHS[0], 7, 2, padding=3)),
        ("relu", nn.ReLU()),
        ("maxpool", nn.MaxPool2d(3, 2, padding=1)),
        *((f"layer{index}", stage) for index, stage in enumerate(stages, start=1)),
        ("avgpool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
    ]
    return on_images(image_shape, parts, nn.Linear(width, outputs))
