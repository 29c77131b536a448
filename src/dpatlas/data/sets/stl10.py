"""Reader of STL-10's labelled images: the official archive, packed or not.

The archive's binary files hold images one after the other, each as three channels of 96 x 96 bytes
that run down the columns, and labels from 1 to 10, a byte each. Nothing is unpacked to disk, and
the 100,000 images without a label are never read.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpatlas.data.definitions import DataSet, RemoteFile, Scaling
from dpatlas.data.official import by_class, first_copy, folders, official_files, official_marks
from dpatlas.data.sets.cifar10 import CIFAR10
from dpatlas.data.sources import Images, Source
from dpatlas.errors import InputError

CLASSES = "airplane bird car cat deer dog horse monkey ship truck"
# At its own 96 x 96 pixels, with the scaling of the networks that were trained on ImageNet.
STL10 = DataSet(
    name="stl10",
    what="13,000 labelled colour photographs of 96 x 96 pixels in ten classes, taken from ImageNet",
    classes=tuple(CLASSES.split()),
    image_shape=(3, 96, 96),
    counts={"train": (500,) * 10, "test": (800,) * 10},
    scaling=Scaling(multiply=1, subtract=0, divide=255),
    licence="no licence stated; the authors ask for a citation of Coates, Lee and Ng (2011); the "
    "photographs are ImageNet's, under its terms",
    version="2011, binary",
    files=(
        RemoteFile(
            name="stl10_binary.tar.gz",
            md5="91f7769df0f17e558f3565bffb0c7dfb",
            address="http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            size=2_640_397_119,
        ),
    ),
    accepts=("stl10_binary.tar.gz", "stl10_binary/"),
    unpacked_md5={
        "train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
        "train_y.bin": "5a34089d4802c674881badbb80307741",
        "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
        "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
    },
)

# The same for backbones that were trained on CIFAR-10: with its size and its scaling.
STL10_32 = replace(
    STL10,
    name="stl10-32",
    what="13,000 labelled colour photographs in ten classes, taken from ImageNet, averaged over "
    "blocks to 32 x 32 pixels",
    image_shape=CIFAR10.image_shape,
    scaling=CIFAR10.scaling,
)
SETS = (STL10, STL10_32)


# Sub-folder for local copies of both data sets.
FAMILY = "stl10"
CHANNELS, SIDE = 3, 96
IMAGE_BYTES = CHANNELS * SIDE**2


def locate(data_set: DataSet, searched: Sequence[Path]) -> Source | None:
    """The best copy in `searched` or in their sub-folders `stl10`: packed before unpacked."""
    candidates = folders(searched, FAMILY, data_set.name)
    return first_copy(official_marks(data_set), candidates)


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`, training and test split, averaged to the size of `data_set`.

    Raises InputError, with the file and what is wrong, for a wrong md5, a truncated or damaged
    archive, a missing file, and for labels or images that do not fit together.
    """
    files, checksum = official_files(source, data_set)
    codes = [data_set.classes.index(name) for name in classes]
    splits = {}
    for split in data_set.counts:
        pixels, labels = _split(source.required_path, files, split, len(data_set.classes))
        splits[split] = by_class(_averaged(pixels, data_set.image_shape[1]), labels, codes)
    return Images(splits, checksum)


def _split(
    path: Path, files: dict[str, bytes], split: str, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, channels, columns, rows) uint8 as they are stored, and labels (n,) from 0."""
    where = f"{path}: {split}"
    labels = np.frombuffer(files[f"{split}_y.bin"], np.uint8)
    if labels.size and not 1 <= labels.min() <= labels.max() <= classes:
        found = f"labels from {labels.min()} to {labels.max()}"
        raise InputError(f"{where}_y.bin", found, f"labels from 1 to {classes}")
    content = files[f"{split}_X.bin"]
    if len(content) != labels.size * IMAGE_BYTES:
        allowed = f"{IMAGE_BYTES} for each of {labels.size} labels"
        raise InputError(f"{where}_X.bin", f"{len(content)} bytes", allowed)
    pixels = np.frombuffer(content, np.uint8).reshape(-1, CHANNELS, SIDE, SIDE)
    return pixels, labels.astype(np.int64) - 1


def _averaged(stored: np.ndarray, side: int) -> np.ndarray:
    """Records (n, channels side side), rows first: means of square blocks, rounded to a level.

    stored: (n, channels, columns, rows) of `SIDE`, a multiple of `side`. An odd block has no ties.
    """
    block = SIDE // side
    rows = stored.transpose(0, 1, 3, 2)
    if block > 1:
        blocks = rows.reshape(len(rows), CHANNELS, side, block, side, block)
        totals = blocks.sum((3, 5), dtype=np.uint16)
        rows = ((totals + block**2 // 2) // block**2).astype(np.uint8)
    return rows.reshape(len(rows), CHANNELS * side**2)
