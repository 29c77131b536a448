"""Reader of MNIST: the four official idx files, each with or without its gzip layer.

How a file is packed does not matter: its content must be the official one to the byte.
"""

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.data.definitions import DataSet, RemoteFile, Scaling
from dpatlas.data.official import DAMAGED, by_class, folders
from dpatlas.data.sources import Images, Source
from dpatlas.errors import InputError

MNIST_FILES = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = DataSet(
    name="mnist",
    what="70,000 handwritten digits of 28 x 28 grey levels",
    classes=tuple("0123456789"),
    image_shape=(1, 28, 28),
    counts={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    scaling=Scaling(multiply=1, subtract=0, divide=255),
    licence="no licence stated; LeCun, Cortes and Burges (1998), made from NIST's Special "
    "Databases 1 and 3",
    version="1998",
    files=tuple(
        RemoteFile(name, md5, MNIST_FILES + name, size=size)
        for name, md5, size in (
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        )
    ),
    accepts=(
        "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte, each with or without .gz",
    ),
    unpacked_md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    pretraining=True,
)
SETS = (MNIST,)


IMAGES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
LABELS = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}
UNSIGNED_BYTES = 0x08
OFFICIAL_CONTENT = "idx files, official content"


def locate(data_set: DataSet, searched: Sequence[Path]) -> Source | None:
    """The first of `searched` and of their sub-folders `mnist` that holds all four files."""
    for folder in folders(searched, data_set.name):
        paths = [_find(folder, name) for name in data_set.unpacked_md5]
        if all(paths):
            return Source(OFFICIAL_CONTENT, paths[0])
    return None


def lacking(data_set: DataSet, searched: Sequence[Path]) -> str:
    """Which files the first incomplete copy lacks, in words; empty where there is no file."""
    for folder in folders(searched, data_set.name):
        missing = [name for name in data_set.unpacked_md5 if _find(folder, name) is None]
        if len(missing) < len(data_set.unpacked_md5):
            return f"{folder} lacks {', '.join(missing)}"
    return ""


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`, training and test split; the checksum covers all four contents.

    Raises InputError, with the file and what is wrong, for a damaged gzip layer, another shape or
    size, or a content whose md5 is not the official one.
    """
    codes = [data_set.classes.index(name) for name in classes]
    folder = source.required_path.parent
    splits = {}
    for split, per_class in data_set.counts.items():
        shape = (sum(per_class), *data_set.image_shape[1:])
        pixels = _read_idx(folder, IMAGES[split], shape, data_set)
        labels = _read_idx(folder, LABELS[split], shape[:1], data_set)
        splits[split] = by_class(pixels.reshape(len(pixels), -1), labels, codes)
    return Images(splits, f"sha256:{sha256(canonical_json(dict(data_set.unpacked_md5)))}")


def _find(folder: Path, name: str) -> Path | None:
    candidates = (folder / f"{name}.gz", folder / name)
    return next((path for path in candidates if path.is_file()), None)


def _read_idx(folder: Path, name: str, shape: tuple[int, ...], data_set: DataSet) -> np.ndarray:
    """The uint8 array of the given shape that an idx file holds: header, then bytes row by row."""
    path = _find(folder, name)
    if path is None:
        raise InputError(str(folder), f"no {name}", "all four files")
    header = bytes([0, 0, UNSIGNED_BYTES, len(shape)]) + np.array(shape, ">u4").tobytes()
    size = len(header) + int(np.prod(shape))
    content = _content(path, size)
    if content[: len(header)] != header or len(content) != size:
        whole = f"an idx file of {' x '.join(map(str, shape))} bytes"
        raise InputError(str(path), "another header or length", whole)
    found, expected = hashlib.md5(content, usedforsecurity=False), data_set.unpacked_md5[name]
    if found.hexdigest() != expected:
        raise InputError(
            str(path),
            f"content with md5 {found.hexdigest()}",
            f"md5 {expected}, the official content's; remove this file, it is damaged or another",
        )
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


def _content(path: Path, size: int) -> bytes:
    """At most one byte more than `size`: enough to see that a file is too long, not to unpack it.

    Asking for that byte also makes gzip check its own sum.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return stream.read(size + 1)
    except DAMAGED as error:
        found = f"a truncated or damaged gzip file ({error})"
        raise InputError(str(path), found, "a whole file") from None
