"""Readers of CIFAR-10: the official archive, packed or not, or a JPEG copy of it.

Local copies are read in place and never written to. Nothing is unpacked to disk, so names inside an
archive never become paths: a member counts if its whole name is one that is expected.
"""

import gzip
import hashlib
import io
import lzma
import pickle
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.data.registry import DataSet
from dpatlas.data.sources import Images, Source, check_md5, file_digest
from dpatlas.errors import InputError

OFFICIAL_FOLDER = "cifar-10-batches-py"
IMAGE_NAME = re.compile(r"(?:\./)?(?P<split>train|test)/(?P<label>[a-z]+)/(?P<number>\d{4})\.jpg")
DAMAGED = (tarfile.TarError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError)

OFFICIAL_ARCHIVE = "official archive"
OFFICIAL_BATCHES = "official archive, unpacked"
JPEG_TAR = "JPEG copy from a tar file"
JPEG_FOLDER = "JPEG copy from a folder"


def locate(data_set: DataSet, places: Sequence[Path]) -> Source | None:
    """The best copy in `places` or in their sub-folders `cifar10`: official before JPEG."""
    marks = {
        OFFICIAL_ARCHIVE: data_set.files[0].name,
        OFFICIAL_BATCHES: OFFICIAL_FOLDER,
        JPEG_TAR: "cifar10_images.tar.xz",
        JPEG_FOLDER: f"train/{data_set.classes[0]}",
    }
    for kind, mark in marks.items():
        for place in places:
            for folder in (place, place / data_set.name):
                if (folder / mark).exists():
                    return Source(kind, folder if kind == JPEG_FOLDER else folder / mark)
    return None


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`, training and test split.

    Raises InputError, with the file and what is wrong, for a wrong md5, a truncated or damaged
    archive, a pickle that holds more than arrays, an image that cannot be decoded or has another
    size.
    """
    readers = {
        OFFICIAL_ARCHIVE: _read_archive,
        OFFICIAL_BATCHES: _read_batches,
        JPEG_TAR: _read_tar,
        JPEG_FOLDER: _read_folder,
    }
    return readers[source.kind](source.path, data_set, classes)


def _read_archive(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    check_md5(path, data_set.files[0].md5)
    wanted = {f"{OFFICIAL_FOLDER}/{name}": name for name in data_set.unpacked_md5}
    batches = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.name in wanted and member.isreg():
                    batches[wanted[member.name]] = archive.extractfile(member).read()
    except DAMAGED as error:
        raise _damaged(path, error) from None
    checksum = f"md5:{data_set.files[0].md5}"
    return _from_batches(path, batches, data_set, classes, checksum)


def _read_batches(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    batches = {}
    for name, md5 in data_set.unpacked_md5.items():
        if not (path / name).is_file():
            raise InputError(str(path / name), "no such file", f"one of {data_set.name}'s batches")
        check_md5(path / name, md5)
        batches[name] = (path / name).read_bytes()
    checksum = f"sha256:{sha256(canonical_json(dict(data_set.unpacked_md5)))}"
    return _from_batches(path, batches, data_set, classes, checksum)


def _from_batches(
    path: Path,
    batches: Mapping[str, bytes],
    data_set: DataSet,
    classes: Sequence[str],
    checksum: str,
) -> Images:
    missing = [name for name in data_set.unpacked_md5 if name not in batches]
    if missing:
        raise InputError(str(path), f"no {', '.join(missing)}", "all batches of the official copy")
    codes = [data_set.classes.index(name) for name in classes]
    parts: dict[str, list[list[np.ndarray]]] = {
        split: [[] for _ in classes] for split in ("train", "test")
    }
    for name in data_set.unpacked_md5:
        pixels, labels = _unpickle(f"{path}: {name}", batches[name], data_set)
        split = "test" if name == "test_batch" else "train"
        for part, code in zip(parts[split], codes, strict=True):
            part.append(pixels[labels == code])
    splits = {
        split: _stack([np.concatenate(part) for part in per_class])
        for split, per_class in parts.items()
    }
    return Images(splits, checksum)


class _ArraysOnly(pickle.Unpickler):
    """Builds lists, dictionaries, strings, numbers and numpy arrays, and nothing else."""

    # The official files were written by numpy 1, which named its core module differently.
    ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }
    )

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"a pickle that asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core.", "numpy._core."), name)


def _unpickle(where: str, content: bytes, data_set: DataSet) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, d) uint8 and labels (n,) of one batch."""
    size = int(np.prod(data_set.image_shape))
    allowed = f"a batch of CIFAR-10: n x {size} bytes and n labels"
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = batch[b"data"], np.array(batch[b"labels"], dtype=np.int64)
    # A damaged pickle can raise nearly anything, and every one of them means the same.
    except Exception as error:
        found = str(error) if isinstance(error, pickle.UnpicklingError) else "a damaged pickle"
        raise InputError(where, found, allowed) from None
    fits = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8
    if not fits or pixels.shape != (labels.size, size) or labels.ndim != 1:
        raise InputError(where, "arrays of another kind or shape", allowed)
    return pixels, labels


def _read_tar(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    def members() -> Iterator[tuple[str, bytes]]:
        with tarfile.open(path, "r|xz") as archive:
            for member in archive:
                if member.isreg() and _is_wanted(member.name, classes):
                    yield member.name, archive.extractfile(member).read()

    try:
        files = list(members())
    except DAMAGED as error:
        raise _damaged(path, error) from None
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
        split: _stack([np.array(part, dtype=np.uint8).reshape(-1, size) for part in per_class])
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


def _stack(per_class: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    labels = np.repeat(np.arange(len(per_class)), [len(part) for part in per_class])
    return np.concatenate(per_class), labels.astype(np.int64)


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(str(path), f"a truncated or damaged archive ({error})", "a whole archive")
