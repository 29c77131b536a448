"""Reader of the chest X-rays: the published archive of JPEG images, or PneumoniaMNIST.

PneumoniaMNIST is the archive at 28 x 28 pixels; its training and validation parts together are the
archive's training part. Files are read in place. Nothing is unpacked to disk, so names inside an
archive never become paths: a member counts if its whole name is one that is expected.

A record is an image. Some children have several, so a guarantee per record is not one per child.
"""

import contextlib
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dpatlas.data.registry import DataSet
from dpatlas.data.sources import Images, Source, file_digest
from dpatlas.errors import InputError

FOLDER = "pneumonia"
ARCHIVE_NAME = "ChestXRay2017.zip"
NPZ_NAME = "pneumoniamnist.npz"
# As the authors of MedMNIST publish it.
NPZ_MD5 = "28209eda62fecd6e6a2d98b1501bb15f"
NPZ_PARTS = {"train": ("train", "val"), "test": ("test",)}
MEMBER = re.compile(
    r"chest_xray/(?P<split>train|test)/(?P<folder>NORMAL|PNEUMONIA)/"
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*)\.jpe?g"
)
CAUSES = ("bacteria", "virus")
# What zipfile raises for damaged bytes: its own complaint, or what it stumbles over.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    UnicodeDecodeError,
)

# Images smaller than they are prepared at are enlarged, but not from less than this.
SMALLEST_SIDE = 28
# Far above the published images, of which the largest has 8 million pixels.
LARGEST_MEMBER = 1 << 24
LARGEST_IMAGE = 1 << 24

OFFICIAL_ARCHIVE = "official archive"
OFFICIAL_NPZ = "PneumoniaMNIST"
OTHER_NPZ = "PneumoniaMNIST, not the published file"


def locate(data_set: DataSet, places: Sequence[Path]) -> Source | None:
    """The best copy in `places` or in their sub-folders `pneumonia`: the archive first."""
    for name in data_set.accepts:
        for place in places:
            for folder in (place, place / data_set.name, place / FOLDER):
                if (folder / name).is_file():
                    return Source(_kind(folder / name), folder / name)
    return None


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The X-rays of `classes`, training and test split; the checksum is the file's sha256.

    Raises InputError, with the file and what is wrong, for a truncated or damaged archive, a
    missing array, an array of another kind or shape, an image that cannot be decoded or is of an
    absurd size.
    """
    reader = _read_archive if source.kind == OFFICIAL_ARCHIVE else _read_npz
    splits = reader(source.path, data_set, classes)
    return Images(splits, f"sha256:{file_digest(source.path, 'sha256')}")


def _kind(path: Path) -> str:
    if path.name == ARCHIVE_NAME:
        return OFFICIAL_ARCHIVE
    return OFFICIAL_NPZ if file_digest(path, "md5") == NPZ_MD5 else OTHER_NPZ


def _read_archive(
    path: Path, data_set: DataSet, classes: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    images: dict[str, list[np.ndarray]] = {split: [] for split in data_set.counts}
    labels: dict[str, list[str]] = {split: [] for split in data_set.counts}
    with _archive(path) as archive:
        for name in sorted(set(archive.namelist())):
            match = MEMBER.fullmatch(name)
            label = _class_of(match, data_set) if match else None
            if label in classes:
                image = _decode(f"{path}: {name}", _member(archive, name), data_set)
                images[match["split"]].append(image)
                labels[match["split"]].append(label)
    size = int(np.prod(data_set.image_shape))
    return {
        split: _by_class(
            np.array(images[split], dtype=np.uint8).reshape(-1, size),
            np.array(labels[split], dtype=object),
            classes,
        )
        for split in data_set.counts
    }


def _class_of(match: re.Match, data_set: DataSet) -> str:
    """By folder; where the data set tells causes apart, by what the file is called."""
    if match["folder"] == "NORMAL":
        return "normal"
    name = match["name"].lower()
    causes = [cause for cause in CAUSES if cause in data_set.classes and cause in name]
    return causes[0] if causes else "pneumonia"


def _decode(where: str, content: bytes, data_set: DataSet) -> np.ndarray:
    """One image as (d,) uint8: grey, its central square, resized by a bicubic filter."""
    from PIL import Image, UnidentifiedImageError

    _, height, width = data_set.image_shape
    least = f"{SMALLEST_SIDE} x {SMALLEST_SIDE} pixels"
    allowed = f"a JPEG image, {least} or more, {LARGEST_IMAGE} pixels at most"
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            # The header is enough to refuse an image of an absurd size before it is decoded.
            large = image.width * image.height > LARGEST_IMAGE
            if large or min(image.size) < SMALLEST_SIDE:
                raise InputError(where, f"{image.width} x {image.height} pixels", allowed)
            grey = image.convert("L")
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError):
        raise InputError(where, "an image that cannot be decoded", allowed) from None
    side = min(grey.size)
    left, top = (grey.width - side) // 2, (grey.height - side) // 2
    square = (left, top, left + side, top + side)
    return np.asarray(grey.resize((width, height), Image.Resampling.BICUBIC, box=square)).ravel()


def _read_npz(
    path: Path, data_set: DataSet, classes: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    names = np.array(data_set.classes, dtype=object)
    splits = {}
    with _archive(path) as archive:
        for split, parts in NPZ_PARTS.items():
            pairs = [_labelled(archive, part, data_set) for part in parts]
            pixels, codes = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
            splits[split] = _by_class(pixels, names[codes], classes)
    return splits


def _labelled(
    archive: zipfile.ZipFile, part: str, data_set: DataSet
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, d) uint8 and class codes (n,) of one part of PneumoniaMNIST."""
    images, labels = (_array(archive, f"{part}_{what}.npy") for what in ("images", "labels"))
    fits = images.dtype == labels.dtype == np.uint8
    fits = fits and images.shape[1:] == data_set.image_shape[1:]
    if not (fits and labels.shape == (len(images), 1) and (labels < len(data_set.classes)).all()):
        shape = " x ".join(map(str, data_set.image_shape[1:]))
        raise InputError(
            f"{archive.filename}: {part}",
            f"{images.dtype} {images.shape} and {labels.dtype} {labels.shape}",
            f"bytes, n x {shape} pixels and n x 1 labels below {len(data_set.classes)}",
        )
    return images.reshape(len(images), -1), labels[:, 0]


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    if name not in archive.namelist():
        raise InputError(archive.filename, f"no {name}", "the six arrays of PneumoniaMNIST")
    content = _member(archive, name)
    try:
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    # A damaged header can raise nearly anything, and every one of them means the same.
    except Exception:
        raise InputError(
            f"{archive.filename}: {name}", "a damaged array or one of objects", "an array of bytes"
        ) from None


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with path.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                yield archive
        except DAMAGED as error:
            raise InputError(
                str(path), f"a truncated or damaged archive ({error})", "a whole archive"
            ) from None


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member's content, which zipfile cuts at the size that its entry states."""
    size = archive.getinfo(name).file_size
    if size > LARGEST_MEMBER:
        raise InputError(
            f"{archive.filename}: {name}", f"{size} bytes", f"{LARGEST_MEMBER} bytes at most"
        )
    return archive.read(name)


def _by_class(
    pixels: np.ndarray, names: np.ndarray, classes: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels class by class, each in the order of the source, and positions in `classes`."""
    members = [np.flatnonzero(names == name) for name in classes]
    positions = np.repeat(np.arange(len(classes)), [len(each) for each in members])
    return pixels[np.concatenate(members)], positions.astype(np.int64)
