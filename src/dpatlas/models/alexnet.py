"""AlexNet (Krizhevsky et al., 2012): for 32x32 images, and as published with ImageNet weights."""

from collections.abc import Sequence

from torch import nn

from dpatlas.errors import InputError
from dpatlas.models.imagenet import on_images
from dpatlas.models.network import Network

# Channels, kernel, stride of the convolutions; max-pooling halves the map after these.
CONVOLUTIONS = ((64, 11, 4), (192, 5, 1), (384, 3, 1), (256, 3, 1), (256, 3, 1))
HALVED_AFTER = (1, 2)
# The published network: padding of its convolutions, side of their last map, hidden features.
PADDINGS, MAP_SIDE, HIDDEN = (2, 2, 1, 1, 1), 6, 4096
# Below this the second halving would have nothing left to pool.
SMALLEST_SIDE = 13


def alexnet(image_shape: Sequence[int] = (3, 32, 32), outputs: int = 10) -> Network:
    """Five convolutions with biases and ReLU, max-pooling after three of them; 256 features.

    One linear layer stands in for the three at the end of the published network: 2.47 million
    parameters with ten outputs. It has no normalisation and no dropout.

    Raises InputError for images with a side below 13.
    """
    into, height, width = image_shape
    if min(height, width) < SMALLEST_SIDE:
        smallest = f"{SMALLEST_SIDE} x {SMALLEST_SIDE} pixels or more"
        raise InputError("image_shape", f"{height} x {width} pixels", smallest)
    parts = []
    for index, (out, kernel, stride) in enumerate(CONVOLUTIONS, start=1):
        parts += [
            (f"conv{index}", nn.Conv2d(into, out, kernel, stride, padding=kernel // 2)),
            (f"relu{index}", nn.ReLU()),
        ]
        if index in HALVED_AFTER:
            parts.append((f"pool{index}", nn.MaxPool2d(2)))
        into = out
    return Network(
        [
            *parts,
            # 2x2 positions are left of a 32x32 image.
            ("pool5", nn.AdaptiveMaxPool2d(1)),
            ("flatten", nn.Flatten()),
            ("head", nn.Linear(into, outputs)),
        ]
    )


def imagenet_alexnet(image_shape: Sequence[int] = (3, 224, 224), outputs: int = 1000) -> Network:
    """The published AlexNet without its dropout: 4,096 features, 61.1 million parameters.

    Not torchvision's, which activates in place. Takes images as `imagenet_resnet18` does.

    Raises InputError for images with other than 1 or 3 channels.
    """
    convolutions, into = [], 3
    for index, (out, kernel, stride) in enumerate(CONVOLUTIONS, start=1):
        convolutions += [nn.Conv2d(into, out, kernel, stride, PADDINGS[index - 1]), nn.ReLU()]
        if index in (*HALVED_AFTER, len(CONVOLUTIONS)):
            convolutions.append(nn.MaxPool2d(3, 2))
        into = out
    parts = [
        ("features", nn.Sequential(*convolutions)),
        ("flatten", nn.Flatten()),
        ("hidden1", nn.Linear(into * MAP_SIDE**2, HIDDEN)),
        ("relu1", nn.ReLU()),
        ("hidden2", nn.Linear(HIDDEN, HIDDEN)),
        ("relu2", nn.ReLU()),
        ("head", nn.Linear(HIDDEN, outputs)),
    ]
    return on_images(image_shape, parts)
