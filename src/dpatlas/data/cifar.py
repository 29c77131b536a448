"""What CIFAR-10 and CIFAR-100 share: batches of the official archive, packed or not.

Local copies are read in place and never written to. Nothing is unpacked to disk, so names inside an
archive never become paths: a member counts if its whole name is one that is expected.
"""

import gzip
import io
import lzma
import pickle
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.data.registry import DataSet
from dpatlas.data.sources import Images, Source, check_md5
from dpatlas.errors import InputError

DAMAGED = (tarfile.TarError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError)

OFFICIAL_ARCHIVE = "official archive"
OFFICIAL_BATCHES = "official archive, unpacked"


@dataclass(frozen=True)
class Layout:
    """Where an official archive keeps what; its batches are the members with an md5.

    folder: of the batches. test: the batch that is the test split; the others are for training.
    labels: key of the labels in a batch.
    """

    folder: str
    test: str
    labels: bytes

    def marks(self, data_set: DataSet) -> dict[str, str]:
        """What tells a copy by its name, by kind of source, the best first."""
        return {OFFICIAL_ARCHIVE: data_set.files[0].name, OFFICIAL_BATCHES: self.folder}

    def read(self, source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
        """The images of `classes` from an official copy, training and test split.

        Raises InputError, with the file and what is wrong, for a wrong md5, a truncated or damaged
        archive, a pickle that holds more than arrays.
        """
        packed = source.kind == OFFICIAL_ARCHIVE
        batches = (self._packed if packed else _unpacked)(source.path, data_set)
        missing = [name for name in data_set.unpacked_md5 if name not in batches]
        if missing:
            allowed = "all batches of the official copy"
            raise InputError(str(source.path), f"no {', '.join(missing)}", allowed)
        checksum = (
            f"md5:{data_set.files[0].md5}"
            if packed
            else f"sha256:{sha256(canonical_json(dict(data_set.unpacked_md5)))}"
        )
        return Images(self._splits(source.path, batches, data_set, classes), checksum)

    def _packed(self, path: Path, data_set: DataSet) -> dict[str, bytes]:
        check_md5(path, data_set.files[0].md5)
        wanted = {f"{self.folder}/{name}": name for name in data_set.unpacked_md5}
        batches = {}
        try:
            with tarfile.open(path, "r:gz") as archive:
                for member in archive:
                    if member.name in wanted and member.isreg():
                        batches[wanted[member.name]] = archive.extractfile(member).read()
        except DAMAGED as error:
            raise damaged(path, error) from None
        return batches

    def _splits(
        self,
        path: Path,
        batches: Mapping[str, bytes],
        data_set: DataSet,
        classes: Sequence[str],
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        codes = [data_set.classes.index(name) for name in classes]
        parts: dict[str, list[list[np.ndarray]]] = {
            split: [[] for _ in classes] for split in ("train", "test")
        }
        for name in data_set.unpacked_md5:
            where = f"{path}: {name}"
            pixels, labels = _unpickle(where, batches[name], data_set, self.labels)
            split = "test" if name == self.test else "train"
            for part, code in zip(parts[split], codes, strict=True):
                part.append(pixels[labels == code])
        return {
            split: stack([np.concatenate(part) for part in per_class])
            for split, per_class in parts.items()
        }


def first_copy(
    marks: Mapping[str, str], data_set: DataSet, places: Sequence[Path]
) -> Source | None:
    """The first mark that is there, in `places` or in their sub-folders named as the data set."""
    for kind, mark in marks.items():
        for place in places:
            for folder in (place, place / data_set.name):
                if (folder / mark).exists():
                    return Source(kind, folder / mark)
    return None


def stack(per_class: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Images class by class, and positions of the classes as labels."""
    labels = np.repeat(np.arange(len(per_class)), [len(part) for part in per_class])
    return np.concatenate(per_class), labels.astype(np.int64)


def damaged(path: Path, error: Exception) -> InputError:
    """For an archive that cannot be read to its end."""
    return InputError(str(path), f"a truncated or damaged archive ({error})", "a whole archive")


def _unpacked(path: Path, data_set: DataSet) -> dict[str, bytes]:
    batches = {}
    for name, md5 in data_set.unpacked_md5.items():
        if not (path / name).is_file():
            raise InputError(str(path / name), "no such file", f"one of {data_set.name}'s batches")
        check_md5(path / name, md5)
        batches[name] = (path / name).read_bytes()
    return batches


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


def _unpickle(
    where: str, content: bytes, data_set: DataSet, key: bytes
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, d) uint8 and labels (n,) of one batch, the labels under `key`."""
    size = int(np.prod(data_set.image_shape))
    allowed = f"a batch of {data_set.name}: n x {size} bytes and n labels"
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = batch[b"data"], np.array(batch[key], dtype=np.int64)
    # A damaged pickle can raise nearly anything, and every one of them means the same.
    except Exception as error:
        found = str(error) if isinstance(error, pickle.UnpicklingError) else "a damaged pickle"
        raise InputError(where, found, allowed) from None
    fits = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8
    if not fits or pixels.shape != (labels.size, size) or labels.ndim != 1:
        raise InputError(where, "arrays of another kind or shape", allowed)
    return pixels, labels
