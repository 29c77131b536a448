"""ResNet18 as published with weights for ImageNet (He et al., 2016), for records of any size.

BatchNorm in evaluation mode is a fixed affine map of each channel. It is folded into the
convolution before it: what is left computes the same, keeps no statistics and mixes no records.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.utils.fusion import fuse_conv_bn_weights

from dpatlas.core.guard import checked, integer
from dpatlas.errors import InputError
from dpatlas.models.network import Network

# What its inputs are: grey levels from 0 to 255 as shares of 255, as prepared sets say it.
PREPROCESSING = {"multiply": 1, "subtract": 0, "divide": 255, "norm": None}
SIDE = 224
# Of the channels of ImageNet's training images: public constants, published with the weights.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WIDTHS = (64, 128, 256, 512)
# torch's BatchNorm adds this to a variance.
NORM_EPSILON = 1e-5
# Records at a time without autograd: the activations of one take some 10 MB.
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


class Sliced(nn.Sequential):
    """Parts in sequence; without autograd `SLICE` records at a time, for memory's sake."""

    def forward(self, x: Tensor) -> Tensor:
        """The last part's output for all records."""
        run = super().forward
        if torch.is_grad_enabled():
            return run(x)
        return torch.cat([run(rows) for rows in x.split(SLICE)])


@checked(outputs=integer(ge=1))
def imagenet_resnet18(image_shape: Sequence[int] = (1, 224, 224), outputs: int = 1000) -> Network:
    """ResNet18 with the published stem, its BatchNorms folded away; 512 features.

    Takes grey or colour images as shares of their grey levels (`PREPROCESSING`); 11.68 million
    parameters with 1,000 outputs. Not meant to be trained from initial weights: nothing normalises
    activations.

    Raises InputError for images with other than 1 or 3 channels.
    """
    if image_shape[0] not in (1, 3):
        raise InputError("image_shape", f"{image_shape[0]} channels", "1 or 3 channels")
    blocks = [
        (
            f"layer{index}",
            nn.Sequential(Block(into, out, 1 if index == 1 else 2), Block(out, out, 1)),
        )
        for index, (into, out) in enumerate(pairwise([WIDTHS[0], *WIDTHS]), start=1)
    ]
    body = Sliced()
    for name, part in [
        ("input", ImageNetInput()),
        ("conv1", nn.Conv2d(3, WIDTHS[0], 7, 2, padding=3)),
        ("relu", nn.ReLU()),
        ("maxpool", nn.MaxPool2d(3, 2, padding=1)),
        *blocks,
        ("avgpool", nn.AdaptiveAvgPool2d(1)),
    ]:
        body.add_module(name, part)
    return Network(
        [("body", body), ("flatten", nn.Flatten()), ("head", nn.Linear(WIDTHS[-1], outputs))]
    )


def folded(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of `imagenet_resnet18` from a state dict of torchvision's resnet18."""
    weights = {f"head.{name}": published[f"fc.{name}"] for name in ("weight", "bias")}
    for entry in published:
        norm, _, kind = entry.rpartition(".")
        if kind != "running_var":
            continue
        convolution = norm.replace("bn", "conv").replace("downsample.1", "downsample.0")
        found = fuse_conv_bn_weights(
            published[f"{convolution}.weight"],
            None,
            published[f"{norm}.running_mean"],
            published[entry],
            NORM_EPSILON,
            published[f"{norm}.weight"],
            published[f"{norm}.bias"],
        )
        place = convolution.replace("downsample.0", "downsample")
        for name, value in zip(("weight", "bias"), found, strict=True):
            weights[f"body.{place}.{name}"] = value.detach()
    return weights
