"""Reader of the chest X-rays: the published archive of JPEGs, packed or not, or PneumoniaMNIST.

PneumoniaMNIST is the archive at 28 x 28 pixels; its training and validation parts together are the
archive's training part. Files are read in place. Nothing is unpacked to disk, so names inside an
archive never become paths: a member counts if its whole name is one that is expected.
A list of images and labels beside a copy may choose from it: it decides which images belong to the
data set and what they show, whatever their folders and names say.

A record is an image. Some children have several, so a guarantee per record is not one per child.
"""

import contextlib
import csv
import hashlib
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from dpatlas.base.canonical import sha256
from dpatlas.data.bounded import central_square, check_size, jpeg, read_file, undamaged
from dpatlas.data.definitions import DataSet, Scaling
from dpatlas.data.official import (
    OFFICIAL_ARCHIVE,
    OFFICIAL_BATCHES,
    by_class,
    by_split,
    damaged,
    first_copy,
    folders,
    official_marks,
)
from dpatlas.data.sources import Images, Source, file_digest
from dpatlas.errors import InputError

PNEUMONIA = DataSet(
    name="pneumonia",
    what="5,856 chest X-rays of children, the central squares at 28 x 28 grey levels",
    classes=("normal", "pneumonia"),
    image_shape=(1, 28, 28),
    counts={"train": (1349, 3883), "test": (234, 390)},
    scaling=Scaling(multiply=1, subtract=0, divide=255),
    licence="Mendeley Data rscbjbr9sj version 2 (Kermany, Zhang and Goldbaum, 2018), CC BY 4.0; "
    "PneumoniaMNIST (Yang et al., 2023), CC BY 4.0",
    accepts=("ChestXRay2017.zip", "chest_xray/", "pneumoniamnist.npz"),
    by_hand="no checksum is published for the archive, so nothing is fetched: ChestXRay2017.zip is "
    "to be had from Mendeley Data, rscbjbr9sj version 2",
)

# The paper's three classes: the archive's folders know two, its file names tell the cause.
PNEUMONIA_CAUSES = replace(
    PNEUMONIA,
    name="pneumonia_causes",
    classes=("normal", "bacteria", "virus"),
    counts={"train": (1349, 2538, 1345), "test": (234, 242, 148)},
    accepts=("ChestXRay2017.zip", "chest_xray/"),
)

# Those three at the resolution that networks trained on ImageNet take.
PNEUMONIA_224 = replace(
    PNEUMONIA_CAUSES,
    name="pneumonia-224",
    what="5,856 chest X-rays of children, the central squares at 224 x 224 grey levels",
    image_shape=(1, 224, 224),
)

XRAY_LABELS = "chest_xray_labels.csv"


def _cleaned(entry: DataSet) -> DataSet:
    """The part of the X-rays that a list of images and labels chooses."""
    return replace(
        entry,
        name=f"{entry.name}-cleaned",
        what=entry.what.replace("5,856", "5,787") + f", those that {XRAY_LABELS} lists",
        # Of a cleaned list that others used; it is published without numbers per class.
        counts={},
        totals={"train": 5163, "test": 624},
        accepts=tuple(f"{each} with {XRAY_LABELS} beside it" for each in entry.accepts),
        by_hand=f"{entry.by_hand}; {XRAY_LABELS} has the columns file (a path in the archive) and "
        f"label ({', '.join(entry.classes)}) and is yours to bring",
        label_file=XRAY_LABELS,
    )


SETS = (
    PNEUMONIA,
    PNEUMONIA_CAUSES,
    PNEUMONIA_224,
    _cleaned(PNEUMONIA_CAUSES),
    _cleaned(PNEUMONIA_224),
)


FOLDER = "pneumonia"
UNPACKED_NAME = "chest_xray"
NPZ_NAME = "pneumoniamnist.npz"
# As the authors of MedMNIST publish it.
NPZ_MD5 = "28209eda62fecd6e6a2d98b1501bb15f"
NPZ_PARTS = {"train": ("train", "val"), "test": ("test",)}
MEMBER = re.compile(
    r"chest_xray/(?P<split>train|test)/(?P<folder>NORMAL|PNEUMONIA)/"
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*)\.jpe?g"
)
SPLITS = ("train", "test")
PARTS = [(split, name) for split in SPLITS for name in ("NORMAL", "PNEUMONIA")]
CAUSES = ("bacteria", "virus")
# The errors that zipfile raises for damaged bytes.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# Smaller images are refused; those between this and the size of the prepared set are enlarged.
SMALLEST_SIDE = 28
# Far above the published images, of which the largest has 8 million pixels.
LARGEST_MEMBER = 1 << 24
LARGEST_IMAGE = 1 << 24
MOST_IMAGES = 1 << 14
COLUMNS = ["file", "label"]
# The list of all published images would have 0.5 MB.
LARGEST_LIST = 1 << 23

OFFICIAL_NPZ = "PneumoniaMNIST"
OTHER_NPZ = "PneumoniaMNIST, not the published file"


def locate(data_set: DataSet, searched: Sequence[Path]) -> Source | None:
    """The best copy in `searched` or in their sub-folders `pneumonia`: the archive first."""
    candidates = [
        folder
        for folder in folders(searched, data_set.name, FOLDER)
        if not data_set.label_file or (folder / data_set.label_file).exists()
    ]
    source = first_copy(_marks(data_set), candidates)
    if source is not None and source.kind == OFFICIAL_NPZ:
        published = file_digest(source.required_path, "md5") == NPZ_MD5
        return Source(OFFICIAL_NPZ if published else OTHER_NPZ, source.path)
    return source


def lacking(data_set: DataSet, searched: Sequence[Path]) -> str:
    """Which copy has no list of labels beside it, in words; empty if none is there or needed."""
    copy = first_copy(_marks(data_set), folders(searched, data_set.name, FOLDER))
    return f"{copy.path} has no {data_set.label_file} beside it" if copy else ""


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The X-rays of `classes`, training and test split; the checksum is the file's sha256.

    Of an unpacked copy it covers what is read, and where there is a list of labels it too.

    Raises InputError, with the file and what is wrong, for a truncated or damaged archive, a
    missing folder or array, an array of another kind or shape, an image that cannot be decoded or
    is of an absurd size, a list of labels that does not fit the copy.
    """
    readers = {OFFICIAL_ARCHIVE: _read_archive, OFFICIAL_BATCHES: _read_folder}
    return readers.get(source.kind, _read_npz)(source.required_path, data_set, classes)


def _marks(data_set: DataSet) -> dict[str, str]:
    """Names that a copy goes by, by kind of source; PneumoniaMNIST knows no causes."""
    marks = official_marks(PNEUMONIA)
    return marks | ({OFFICIAL_NPZ: NPZ_NAME} if "pneumonia" in data_set.classes else {})


def _read_archive(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    listing = _listing(path, data_set)
    with _archive(path) as archive:
        labels = _labels(path, set(archive.namelist()), data_set, classes, listing)
        splits = _splits(path, labels, partial(_member, archive), data_set, classes)
    digest = file_digest(path, "sha256")
    if listing is not None:
        lines = f"{path.name} {digest}\n{data_set.label_file} {sha256(listing)}\n"
        digest = sha256(lines.encode())
    return Images(splits, f"sha256:{digest}")


def _read_folder(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    missing = [f"{split}/{name}" for split, name in PARTS if not (path / split / name).is_dir()]
    if missing:
        allowed = "all four: " + ", ".join("/".join(part) for part in PARTS)
        raise InputError(str(path), f"no {', '.join(missing)}", allowed)
    members = {
        f"{UNPACKED_NAME}/{split}/{name}/{file.name}"
        for split, name in PARTS
        for file in (path / split / name).iterdir()
    }
    listing = _listing(path, data_set)
    labels = _labels(path, members, data_set, classes, listing)
    digest = hashlib.sha256()

    def content_of(name: str) -> bytes:
        content = read_file(path.parent / name, LARGEST_MEMBER)
        digest.update(f"{name} {sha256(content)}\n".encode())
        return content

    splits = _splits(path, labels, content_of, data_set, classes)
    if listing is not None:
        digest.update(f"{data_set.label_file} {sha256(listing)}\n".encode())
    return Images(splits, f"sha256:{digest.hexdigest()}")


def _listing(path: Path, data_set: DataSet) -> bytes | None:
    """The list of labels beside a copy, for data sets that are defined by one."""
    if not data_set.label_file:
        return None
    return read_file(path.parent / data_set.label_file, LARGEST_LIST)


def _labels(
    path: Path,
    members: Collection[str],
    data_set: DataSet,
    classes: Sequence[str],
    listing: bytes | None,
) -> dict[str, str]:
    """Name -> class of those `members` that are images of `classes`, in order of their names."""
    if listing is None:
        matches = {name: MEMBER.fullmatch(name) for name in members}
        labels = {name: _class_of(match, data_set) for name, match in matches.items() if match}
    else:
        label_file = path.parent / data_set.label_file
        labels = _listed(label_file, listing, data_set.classes)
        _check_listed(label_file, labels, members, data_set.totals)
    if len(labels) > MOST_IMAGES:
        raise InputError(str(path), f"{len(labels)} images", f"{MOST_IMAGES} at most")
    return {name: label for name, label in sorted(labels.items()) if label in classes}


def _listed(path: Path, content: bytes, classes: Sequence[str]) -> dict[str, str]:
    """Path in the archive -> class, in the order of the list in `content`, a csv with a header.

    Raises InputError with the line, for another header, a line that is no path and label, an
    unknown label, and an image that is listed twice.
    """
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        rows = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), f"no csv file ({error})", "a csv file in UTF-8") from None
    if not rows or rows[0][1] != COLUMNS:
        found = ",".join(rows[0][1]) if rows else "an empty file"
        raise InputError(f"{path}: line 1", repr(found[:80]), ",".join(COLUMNS))
    labels: dict[str, str] = {}
    lines: dict[str, int] = {}
    for line, row in rows[1:]:
        where = f"{path}: line {line}"
        if len(row) != len(COLUMNS):
            raise InputError(where, f"{len(row)} columns", " and ".join(COLUMNS))
        file, label = row
        if not MEMBER.fullmatch(file):
            allowed = "chest_xray/, train/ or test/, NORMAL/ or PNEUMONIA/, and a name in .jpeg"
            raise InputError(where, repr(file[:200]), allowed)
        if label not in classes:
            raise InputError(where, f"label {label[:80]!r}", " | ".join(classes))
        if file in labels:
            found = f"{file}, which line {lines[file]} has too"
            raise InputError(where, found, "every image once")
        labels[file], lines[file] = label, line
    return labels


def _check_listed(
    path: Path, labels: Mapping[str, str], members: Collection[str], totals: Mapping[str, int]
) -> None:
    """InputError unless all images of the list are `members` and each split has its total."""
    counts = dict.fromkeys(totals, 0)
    for file in labels:
        split = file.split("/")[1]
        counts[split] += 1
        if file in members:
            continue
        others = (file.replace(f"/{split}/", f"/{other}/", 1) for other in totals)
        elsewhere = next((other for other in others if other in members), None)
        hint = f", but {elsewhere} is" if elsewhere else ""
        allowed = "images of the copy beside this list, each in its own split"
        raise InputError(str(path), f"{file}, which is not in the copy{hint}", allowed)
    for split, total in totals.items():
        if counts[split] != total:
            raise InputError(str(path), f"{counts[split]} {split} images", f"{total} of them")


def _splits(
    path: Path,
    labels: Mapping[str, str],
    content_of: Callable[[str], bytes],
    data_set: DataSet,
    classes: Sequence[str],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    images = (
        (name.split("/")[1], label, _decode(f"{path}: {name}", content_of(name), data_set))
        for name, label in labels.items()
    )
    return by_split(images, SPLITS, data_set, classes)


def _class_of(match: re.Match[str], data_set: DataSet) -> str:
    """By folder; where the data set tells causes apart, by what the file is called."""
    if match["folder"] == "NORMAL":
        return "normal"
    name = match["name"].lower()
    causes = [cause for cause in CAUSES if cause in data_set.classes and cause in name]
    return causes[0] if causes else "pneumonia"


def _decode(where: str, content: bytes, data_set: DataSet) -> np.ndarray:
    """One image as (d,) uint8: grey, its central square, resized by a bicubic filter."""
    _, height, width = data_set.image_shape
    least = f"{SMALLEST_SIDE} x {SMALLEST_SIDE} pixels"
    allowed = f"a JPEG image, {least} or more, {LARGEST_IMAGE} pixels at most"
    with jpeg(where, content, allowed) as image:
        # The header is enough to refuse an image of an absurd size before it is decoded.
        large = image.width * image.height > LARGEST_IMAGE
        if large or min(image.size) < SMALLEST_SIDE:
            raise InputError(where, f"{image.width} x {image.height} pixels", allowed)
        grey = image.convert("L")
    return np.asarray(central_square(grey, width, height)).ravel()


def _read_npz(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    names = np.array(data_set.classes, dtype=object)
    splits = {}
    with _archive(path) as archive:
        for split, parts in NPZ_PARTS.items():
            pairs = [_labelled(archive, part, data_set) for part in parts]
            pixels, codes = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
            splits[split] = by_class(pixels, names[codes], classes)
    return Images(splits, f"sha256:{file_digest(path, 'sha256')}")


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
        raise InputError(str(archive.filename), f"no {name}", "the six arrays of PneumoniaMNIST")
    content, where = _member(archive, name), f"{archive.filename}: {name}"
    with undamaged(where, "a damaged array or one of objects", "an array of bytes"):
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with path.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                yield archive
        except InputError:
            raise
        except DAMAGED as error:
            raise damaged(path, error) from None


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member's content: what its entry states, of which no more is ever unpacked at once."""
    where, member = f"{archive.filename}: {name}", archive.getinfo(name)
    check_size(where, member.file_size, LARGEST_MEMBER)
    if member.compress_type not in COMPRESSIONS:
        found = f"compression method {member.compress_type}"
        raise InputError(where, found, "members that are stored or deflated")
    with archive.open(member) as stream:
        return stream.read(member.file_size + 1)
