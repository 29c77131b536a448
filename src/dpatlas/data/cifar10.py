"""Readers of CIFAR-10: the official archive, packed or not, or a JPEG copy of it.

Names inside a JPEG copy never become paths either: a member counts if its whole name fits.
"""

import hashlib
import io
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from dpatlas.core.canonical import sha256
from dpatlas.data.cifar import Layout
from dpatlas.data.official import DAMAGED, damaged, first_copy, stack
from dpatlas.data.registry import DataSet
from dpatlas.data.sources import Images, Source, file_digest
from dpatlas.errors import InputError

LAYOUT = Layout("cifar-10-batches-py", test="test_batch", labels=b"labels")
IMAGE_NAME = re.compile(r"(?:\./)?(?P<split>train|test)/(?P<label>[a-z]+)/(?P<number>\d{4})\.jpg")

JPEG_TAR = "JPEG copy from a tar file"
JPEG_FOLDER = "JPEG copy from a folder"


def locate(data_set: DataSet, places: Sequence[Path]) -> Source | None:
    """The best copy in `places` or in their sub-folders `cifar10`: official before JPEG."""
    marks = {
        **LAYOUT.marks(data_set),
        JPEG_TAR: "cifar10_images.tar.xz",
        JPEG_FOLDER: f"train/{data_set.classes[0]}",
    }
    source = first_copy(marks, data_set, places)
    if source is not None and source.kind == JPEG_FOLDER:
        return Source(JPEG_FOLDER, source.path.parents[1])
    return source


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`, training and test split.

    Raises InputError, with the file and what is wrong, for a wrong md5, a truncated or damaged
    archive, a pickle that holds more than arrays, an image that cannot be decoded or has another
    size.
    """
    readers = {JPEG_TAR: _read_tar, JPEG_FOLDER: _read_folder}
    if source.kind in readers:
        return readers[source.kind](source.path, data_set, classes)
    return LAYOUT.read(source, data_set, classes)


def _read_tar(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    def members() -> Iterator[tuple[str, bytes]]:
        with tarfile.open(path, "r|xz") as archive:
            for member in archive:
                if member.isreg() and _is_wanted(member.name, classes):
                    yield member.name, archive.extractfile(member).read()

    try:
        files = list(members())
    except DAMAGED as error:
        raise damaged(path, error) from None
    splits = _from_images(path, files, data_set, classes)
    return Images(splits, f"sha256:{file_digest(path, 'sha256')}")


def _read_folder(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    files = [
        (file.relative_to(path).as_posix(), file.read_bytes())
        for split in ("train", "test")
        for name in classes
        for file in sorted((path / split / name).glob("*.jpg"))
        if file.is_file() and _is_wanted(file.relative_to(path).as_posix(), classes)
    ]
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name} {sha256(content)}\n".encode())
    return Images(_from_images(path, files, data_set, classes), f"sha256:{digest.hexdigest()}")


def _is_wanted(name: str, classes: Sequence[str]) -> bool:
    match = IMAGE_NAME.fullmatch(name)
    return match is not None and match["label"] in classes


def _from_images(
    path: Path, files: Iterable[tuple[str, bytes]], data_set: DataSet, classes: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    size = int(np.prod(data_set.image_shape))
    parts: dict[str, list[list[np.ndarray]]] = {
        split: [[] for _ in classes] for split in ("train", "test")
    }
    for name, content in sorted(files):
        match = IMAGE_NAME.fullmatch(name)
        pixels = _decode(f"{path}: {name}", content, data_set)
        parts[match["split"]][classes.index(match["label"])].append(pixels)
    return {
        split: stack([np.array(part, dtype=np.uint8).reshape(-1, size) for part in per_class])
        for split, per_class in parts.items()
    }


def _decode(where: str, content: bytes, data_set: DataSet) -> np.ndarray:
    """One image as (d,) uint8, channels first."""
    from PIL import Image, UnidentifiedImageError

    channels, height, width = data_set.image_shape
    allowed = f"a JPEG image of {width} x {height} pixels and {channels} channels"
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            # The header is enough to refuse an image of another size before it is decoded.
            found = f"{image.width} x {image.height} pixels, {len(image.getbands())} channels"
            if (len(image.getbands()), image.height, image.width) != data_set.image_shape:
                raise InputError(where, found, allowed)
            return np.asarray(image).transpose(2, 0, 1).reshape(-1)
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError):
        raise InputError(where, "an image that cannot be decoded", allowed) from None
