"""Reader of a user's own images: a folder of image files, or an npz file of bytes.

A folder holds train/CLASS/FILE and perhaps test/CLASS/FILE, or it holds CLASS/FILE: one set of
images that is split into all parts. Names that begin with a dot and files beside the folders are
ignored; any other unexpected entry is refused, and so is a link that leads out of the folder. An
npz file holds x_train and y_train, and perhaps x_test and y_test.

Images are read as they are stored: grey or colour of 8 bits, whatever a camera's orientation flag
says.
"""

import hashlib
import io
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.canonical import sha256
from dpatlas.base.own_data import definition, located
from dpatlas.data.bounded import central_square, check_size, read_file, undamaged
from dpatlas.data.definitions import DataSet, Scaling
from dpatlas.data.official import by_class, by_split
from dpatlas.data.sources import Images, Source, file_digest
from dpatlas.errors import InputError

LICENCE = "a user's own data"
FOLDER, NPZ = "own image folder", "own npz"
SCALINGS = {"unit": Scaling(1, 0, 255), "centred": Scaling(2, 255, 255)}
SPLITS = ("train", "test")
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "BMP", "TIFF")
LITTER = ("Thumbs.db", "desktop.ini")
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")

LARGEST_FILE = 1 << 28
LARGEST_IMAGE = 1 << 26
LARGEST_ARRAY = 1 << 32


@dataclass(frozen=True)
class OwnDataSet(DataSet):
    """A data set that a user defined.

    resize: whether the central square of every image file is brought to `image_shape`.
    """

    resize: bool = False


def define(name: str, given: Mapping[str, Any]) -> OwnDataSet:
    """The entry of a data set; InputError for an impossible definition."""
    checked = definition(f"data.own.{name}", given)
    channels, height, width = checked["image_shape"]
    colours = {1: "grey pixels", 3: "pixels in colour"}
    what = f"a user's own images, {height} x {width} "
    what += colours.get(channels, f"pixels in {channels} channels")
    return OwnDataSet(
        name=name,
        what=what + (", the central squares resized" if checked["resize"] else ""),
        classes=tuple(checked["classes"]),
        image_shape=(channels, height, width),
        counts={},
        scaling=SCALINGS[checked["scaling"]],
        licence=LICENCE,
        kind="own",
        resize=checked["resize"],
    )


def locate(path: str) -> Source | None:
    """The folder or npz file at `path`; None if there is neither."""
    data_path = located(path)
    if data_path is None:
        return None
    return Source(FOLDER if data_path.is_dir() else NPZ, data_path)


def read(source: Source, data_set: OwnDataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`, a training split and perhaps a test split.

    The checksum covers names and contents of the image files, or the bytes of the npz file.

    Raises InputError, with the file and what is wrong, for a folder or an array that is unknown or
    missing, for an image or an array that cannot be read or has another size, for levels that are
    no bytes, for labels that are no classes, and for a class without images.
    """
    path = source.required_path
    if source.kind == FOLDER:
        splits, checksum = _read_folder(path, data_set, classes)
    else:
        splits = _read_npz(path, data_set, classes)
        checksum = file_digest(path, "sha256")
    for split, (_, labels) in splits.items():
        for name, count in zip(classes, np.bincount(labels, minlength=len(classes)), strict=True):
            if not count:
                found = f"no {split} images of class {name}"
                raise InputError(source.where, found, "at least one of every class")
    return Images(splits, f"sha256:{checksum}")


def _read_folder(
    root: Path, data_set: OwnDataSet, classes: Sequence[str]
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], str]:
    """Splits, and the digest of names and contents."""
    lines, images, folders = [], [], _split_folders(root)
    for split, folder in folders.items():
        _check_class_folders(folder, root, data_set)
        for name in classes:
            for file in _image_files(folder / name, root):
                content = read_file(file, LARGEST_FILE)
                lines.append(f"{file.relative_to(root).as_posix()} {sha256(content)}\n")
                images.append((split, name, _decode(str(file), content, data_set)))
    splits = by_split(images, folders, data_set, classes)
    listing = "".join(sorted(lines)).encode(errors="surrogateescape")
    return splits, hashlib.sha256(listing).hexdigest()


def _split_folders(root: Path) -> dict[str, Path]:
    folders = {entry.name for entry in _entries(root, root) if entry.is_dir()}
    if not folders & set(SPLITS):
        return {"train": root}
    for name in sorted(folders - set(SPLITS)):
        raise InputError(str(root / name), "an unknown sub-folder", "train and test")
    if "train" not in folders:
        raise InputError(str(root), "test without train", "train, or folders of classes alone")
    return {split: root / split for split in SPLITS if split in folders}


def _check_class_folders(folder: Path, root: Path, data_set: OwnDataSet) -> None:
    found = {entry.name for entry in _entries(folder, root) if entry.is_dir()}
    names = ", ".join(data_set.classes)
    for name in sorted(found - set(data_set.classes)):
        raise InputError(str(folder / name), "an unknown sub-folder", f"the classes {names}")
    for name in data_set.classes:
        if name not in found:
            raise InputError(str(folder), f"no sub-folder {name}", f"the classes {names}")


def _image_files(folder: Path, root: Path) -> Iterator[Path]:
    allowed = f"files that end in {', '.join(ENDINGS)}"
    for entry in _entries(folder, root):
        if entry.is_dir():
            raise InputError(str(entry), "a sub-folder of a class", allowed)
        if not entry.is_file() or entry.suffix.lower() not in ENDINGS:
            raise InputError(str(entry), "a file that is no image", allowed)
        yield entry


def _entries(folder: Path, root: Path) -> list[Path]:
    """Entries of `folder` by name, without hidden ones and files that systems leave behind."""
    entries = [
        entry
        for entry in sorted(folder.iterdir())
        if not entry.name.startswith(".") and entry.name not in LITTER
    ]
    for entry in entries:
        # By realpath, which does not raise for a link to itself.
        if entry.is_symlink() and not Path(realpath(entry)).is_relative_to(realpath(root)):
            allowed = f"files in {root}, or links to such"
            raise InputError(str(entry), "a link that leads out of the folder", allowed)
    return entries


def _decode(where: str, content: bytes, data_set: OwnDataSet) -> np.ndarray:
    """One image as (d,) uint8, channels first."""
    from PIL import Image

    channels, height, width = data_set.image_shape
    if channels not in (1, 3):
        raise InputError(where, f"an image file for {channels} channels", "1 or 3 channels")
    allowed = f"an image, as {', '.join(FORMATS)}"
    with (
        undamaged(where, "an image that cannot be decoded", allowed),
        # Of sizes, which are refused below, and of odd metadata.
        warnings.catch_warnings(action="ignore"),
        Image.open(io.BytesIO(content), formats=FORMATS) as image,
    ):
        # The header is enough to refuse an image before it is decoded.
        _check_header(where, image, data_set)
        if image.has_transparency_data:
            alpha: Any = image.convert("RGBA").getchannel("A")
            if alpha.getextrema()[0] < 255:
                raise InputError(where, "an image that is partly transparent", "an opaque one")
        levels = image.convert("L" if channels == 1 else "RGB")
    if data_set.resize:
        levels = central_square(levels, width, height)
    pixels = np.asarray(levels).reshape(height, width, channels)
    return pixels.transpose(2, 0, 1).ravel()


def _check_header(where: str, image: Any, data_set: OwnDataSet) -> None:
    _, height, width = data_set.image_shape
    found = f"{image.width} x {image.height} pixels"
    if not data_set.resize and image.size != (width, height):
        raise InputError(where, found, f"{width} x {height} pixels, or resize: true")
    if image.width * image.height > LARGEST_IMAGE:
        raise InputError(where, found, f"{LARGEST_IMAGE} pixels at most")
    # Of 16 bits of a colour Pillow would read 8, and say nothing.
    deep = re.search(r"\w+[ABX];16", str(image.tile))
    if image.mode not in MODES or deep:
        kind = deep[0] if deep else image.mode
        raise InputError(where, f"pixels of kind {kind}", "grey or colour of 8 bits")
    if getattr(image, "n_frames", 1) != 1:
        raise InputError(where, f"{image.n_frames} images in one file", "one")


def _read_npz(
    path: Path, data_set: OwnDataSet, classes: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    arrays = _arrays(path)
    codes = [data_set.classes.index(name) for name in classes]
    splits = {}
    for split in SPLITS:
        if f"x_{split}" not in arrays:
            continue
        pixels = _pixels(f"{path}: x_{split}", arrays[f"x_{split}"], data_set)
        labels = arrays[f"y_{split}"]
        _check_labels(f"{path}: y_{split}", labels, len(pixels), data_set)
        splits[split] = by_class(pixels, labels.reshape(-1), codes)
    return splits


def _arrays(path: Path) -> dict[str, np.ndarray]:
    known = [f"{name}_{split}" for split in SPLITS for name in "xy"]
    allowed = "x_train and y_train, and perhaps x_test and y_test"
    found = "a damaged file, or arrays of objects"
    with (
        undamaged(str(path), found, f"an npz file with {allowed}"),
        zipfile.ZipFile(path) as archive,
    ):
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        names = [name.removesuffix(".npy") for name in sizes]
        if sorted(names) not in (sorted(known), sorted(known[:2])):
            raise InputError(str(path), f"arrays {', '.join(names) or 'none'}", allowed)
        for name, size in sizes.items():
            check_size(f"{path}: {name}", size, LARGEST_ARRAY)
        arrays = {}
        for name in names:
            with archive.open(f"{name}.npy") as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
        return arrays


def _pixels(where: str, images: np.ndarray, data_set: OwnDataSet) -> np.ndarray:
    """Images as (n, d) uint8, channels first."""
    channels, height, width = data_set.image_shape
    size = channels * height * width
    if images.dtype != np.uint8:
        raise InputError(
            where,
            f"numbers of kind {images.dtype}",
            "bytes (uint8), made with public constants: np.rint(255 * x).astype(np.uint8) for x "
            "in [0, 1], never with the least and largest value of the data",
        )
    shape = images.shape[1:]
    if shape in [(size,), (channels, height, width)] or (channels, *shape) == (1, height, width):
        return images.reshape(len(images), size)
    if shape == (height, width, channels):
        return images.transpose(0, 3, 1, 2).reshape(len(images), size)
    last = f" or n x {height} x {width}" if channels == 1 else ""
    raise InputError(
        where,
        f"shape {' x '.join(map(str, images.shape))}",
        f"n x {channels} x {height} x {width}, n x {height} x {width} x {channels}, n x {size}"
        f"{last}: arrays are never resized",
    )


def _check_labels(where: str, labels: np.ndarray, n: int, data_set: OwnDataSet) -> None:
    last = len(data_set.classes) - 1
    allowed = f"{n} whole numbers from 0 to {last}, places in data.own.{data_set.name}.classes"
    if labels.dtype.kind not in "iu" or labels.shape not in ((n,), (n, 1)):
        raise InputError(where, f"{labels.dtype} of shape {labels.shape}", allowed)
    if labels.size and (labels.min() < 0 or labels.max() > last):
        raise InputError(where, f"labels from {labels.min()} to {labels.max()}", allowed)
