"""Readers of CIFAR-10: the official archive, packed or not, or a JPEG copy of it.

Names inside a JPEG copy never become paths either: a member counts if its whole name fits.
"""

import hashlib
import lzma
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from dpatlas.base.canonical import sha256
from dpatlas.data.bounded import Bounded, check_size, read_file
from dpatlas.data.cifar import Layout
from dpatlas.data.definitions import DataSet, RemoteFile, Scaling
from dpatlas.data.official import DAMAGED, damaged, first_copy, folders, member_bytes, stack
from dpatlas.data.pictures import jpeg
from dpatlas.data.sources import Images, Source, file_digest
from dpatlas.errors import InputError

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR10 = DataSet(
    name="cifar10",
    what="60,000 colour photographs of 32 x 32 pixels in ten classes",
    classes=tuple(CLASSES.split()),
    image_shape=(3, 32, 32),
    counts={"train": (5000,) * 10, "test": (1000,) * 10},
    scaling=Scaling(multiply=2, subtract=255, divide=255),
    licence="no licence stated; the authors ask for a citation of Krizhevsky (2009)",
    version="2009, for Python",
    files=(
        RemoteFile(
            name="cifar-10-python.tar.gz",
            md5="c58f30108f718f92721af3b95e74349a",
            address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            size=170_498_071,
        ),
    ),
    accepts=(
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py/",
        "cifar10_images.tar.xz",
        "train/CLASS/NNNN.jpg with test/CLASS/NNNN.jpg",
    ),
    unpacked_md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    pretraining=True,
)
SETS = (CIFAR10,)


LAYOUT = Layout("cifar-10-batches-py", test="test_batch", labels=b"labels")
IMAGE_NAME = re.compile(r"(?:\./)?(?P<split>train|test)/(?P<label>[a-z]+)/(?P<number>\d{4})\.jpg")

JPEG_TAR = "JPEG copy from a tar file"
JPEG_FOLDER = "JPEG copy from a folder"
# A copy of good quality has 93 million bytes when unpacked and no image above 1,200.
LARGEST_MEMBER = 1 << 16
LARGEST_TAR = 1 << 29


def locate(data_set: DataSet, searched: Sequence[Path]) -> Source | None:
    """The best copy in `searched` or in their sub-folders `cifar10`: official before JPEG."""
    marks = {
        **LAYOUT.marks(data_set),
        JPEG_TAR: "cifar10_images.tar.xz",
        JPEG_FOLDER: f"train/{data_set.classes[0]}/",
    }
    source = first_copy(marks, folders(searched, data_set.name))
    if source is not None and source.kind == JPEG_FOLDER:
        return Source(JPEG_FOLDER, source.required_path.parents[1])
    return source


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`, training and test split.

    Raises InputError, with the file and what is wrong, for a wrong md5, a truncated or damaged
    archive, a pickle that holds more than arrays, an image that cannot be decoded or has another
    size, files of absurd sizes.
    """
    readers = {JPEG_TAR: _read_tar, JPEG_FOLDER: _read_folder}
    if source.kind in readers:
        return readers[source.kind](source.required_path, data_set, classes)
    return LAYOUT.read(source, data_set, classes)


def _read_tar(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    def members() -> Iterator[tuple[re.Match[str], bytes]]:
        with lzma.open(path) as stream:
            bounded = Bounded(stream, LARGEST_TAR, str(path))
            with tarfile.open(fileobj=cast(BinaryIO, bounded), mode="r|") as archive:
                for member in archive:
                    match = _wanted(member.name, classes)
                    if member.isreg() and match is not None:
                        check_size(f"{path}: {member.name}", member.size, LARGEST_MEMBER)
                        yield match, member_bytes(archive, member)

    try:
        splits = _from_images(path, members(), data_set, classes)
    except DAMAGED as error:
        raise damaged(path, error) from None
    return Images(splits, f"sha256:{file_digest(path, 'sha256')}")


def _read_folder(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    missing = [
        f"{split}/{name}"
        for split in ("train", "test")
        for name in classes
        if not (path / split / name).is_dir()
    ]
    if missing:
        raise InputError(str(path), f"no folders {', '.join(missing)}", "one for each class")
    digest = hashlib.sha256()

    def files() -> Iterator[tuple[re.Match[str], bytes]]:
        for split in ("train", "test"):
            for label in classes:
                for file in sorted((path / split / label).iterdir()):
                    match = _wanted(f"{split}/{label}/{file.name}", classes)
                    if match is not None:
                        content = read_file(file, LARGEST_MEMBER)
                        digest.update(f"{match[0]} {sha256(content)}\n".encode())
                        yield match, content

    splits = _from_images(path, files(), data_set, classes)
    return Images(splits, f"sha256:{digest.hexdigest()}")


def _wanted(name: str, classes: Sequence[str]) -> re.Match[str] | None:
    match = IMAGE_NAME.fullmatch(name)
    return match if match is not None and match["label"] in classes else None


def _from_images(
    path: Path,
    files: Iterable[tuple[re.Match[str], bytes]],
    data_set: DataSet,
    classes: Sequence[str],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    size = int(np.prod(data_set.image_shape))
    by_number: dict[tuple[str, str], dict[str, np.ndarray]] = {
        (split, name): {} for split in ("train", "test") for name in classes
    }
    for match, content in files:
        where, images = f"{path}: {match[0]}", by_number[match["split"], match["label"]]
        if match["number"] in images:
            raise InputError(where, "this image a second time", "every image once")
        images[match["number"]] = _decode(where, content, data_set)
    return {
        split: stack(
            [
                np.array(
                    [pixels for _, pixels in sorted(by_number[split, name].items())], np.uint8
                ).reshape(-1, size)
                for name in classes
            ]
        )
        for split in ("train", "test")
    }


def _decode(where: str, content: bytes, data_set: DataSet) -> np.ndarray:
    """One image as (d,) uint8, channels first."""
    channels, height, width = data_set.image_shape
    allowed = f"a JPEG image of {width} x {height} pixels and {channels} channels"
    with jpeg(where, content, allowed) as image:
        # The header is enough to refuse an image of another size before it is decoded.
        found = f"{image.width} x {image.height} pixels, {len(image.getbands())} channels"
        if (len(image.getbands()), image.height, image.width) != data_set.image_shape:
            raise InputError(where, found, allowed)
        return np.asarray(image).transpose(2, 0, 1).reshape(-1)
