"""Two halves of CIFAR-10 with the same classes: one public, the other private and changed.

A half has every second training photograph of each class. Test photographs are those of CIFAR-10;
they are changed where the private ones are.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpatlas.data.definitions import DataSet
from dpatlas.data.generated.ink import blurred
from dpatlas.data.sets import cifar10
from dpatlas.data.sources import Images, Source

PUBLIC, PRIVATE = (cifar10.CIFAR10.name, 0), (cifar10.CIFAR10.name, 1)
# ITU-R BT.601's shares of red, green and blue in a grey level, in thousandths.
GREY = np.array([299, 587, 114])
# Blurs of weights 1, 2, 1, one after the other: a standard deviation of 1.4 pixels.
BLURS = 4
CHUNK = 1000


def _in_grey(images: np.ndarray) -> np.ndarray:
    levels = (np.tensordot(images.astype(np.int64), GREY, axes=(1, 0)) + 500) // 1000
    return np.broadcast_to(levels[:, None], images.shape)


def _blurred(images: np.ndarray) -> np.ndarray:
    maps = images.transpose(1, 2, 3, 0).astype(np.float64)
    for _ in range(BLURS):
        maps = blurred(maps)
    return np.rint(maps).transpose(3, 0, 1, 2)


# From images (images, channels, height, width) uint8 to as many of levels 0 to 255.
CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cifar10-public": lambda images: images,
    "cifar10-grey": _in_grey,
    "cifar10-blurred": _blurred,
}


def _entry(name: str, what: str, half: tuple[str, int]) -> DataSet:
    public = half == PUBLIC
    return replace(
        cifar10.CIFAR10,
        name=name,
        what=what,
        half=half,
        counts={"train": (2500,) * 10, "test": (1000,) * 10},
        only_public=public,
        pretraining=public,
    )


SETS = (
    _entry("cifar10-public", "a half of CIFAR-10's photographs, as they are", PUBLIC),
    _entry("cifar10-grey", "the other half of CIFAR-10's photographs, in grey", PRIVATE),
    _entry("cifar10-blurred", "the other half of CIFAR-10's photographs, blurred", PRIVATE),
)


def _whole(data_set: DataSet) -> tuple[DataSet, int]:
    """The entry of which it is a half, and the first of every second training photograph."""
    assert data_set.half is not None
    name, first = data_set.half
    return replace(data_set, name=name), first


def locate(data_set: DataSet, searched: Sequence[Path]) -> Source | None:
    """The best copy of CIFAR-10."""
    return cifar10.locate(_whole(data_set)[0], searched)


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The half's images of `classes`. Raises InputError as the reader of CIFAR-10 does."""
    whole, first = _whole(data_set)
    images = cifar10.read(source, whole, classes)
    splits = dict(images.splits)
    pixels, labels = splits["train"]
    of_class = (np.flatnonzero(labels == label) for label in range(len(classes)))
    rows = np.concatenate([each[first::2] for each in of_class])
    splits["train"] = pixels[rows], labels[rows]
    changed = {name: (_changed(data_set, each), of) for name, (each, of) in splits.items()}
    return Images(changed, images.checksum)


def _changed(data_set: DataSet, pixels: np.ndarray) -> np.ndarray:
    """Pixels (n, d) uint8, of so many images at a time."""
    changed = np.empty_like(pixels)
    for start in range(0, len(pixels), CHUNK):
        part = pixels[start : start + CHUNK].reshape(-1, *data_set.image_shape)
        of_part = CHANGES[data_set.name](part).astype(np.uint8)
        changed[start : start + CHUNK] = of_part.reshape(len(part), -1)
    return changed
