"""Shared by CIFAR-10 and CIFAR-100: batches of the official archive, packed or not.

The readers are not torchvision's, which would unpickle whatever a batch asks for.

Local copies are read in place and never written to.
"""

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpatlas.data.definitions import DataSet
from dpatlas.data.official import official_files, official_marks, stack
from dpatlas.data.sources import Images, Source
from dpatlas.errors import InputError


@dataclass(frozen=True)
class Layout:
    """The layout of an official archive, whose batches are the members with an md5.

    folder: that of the batches. test: the batch that is the test split; the others are the training
    split. labels: key of the labels in a batch.
    """

    folder: str
    test: str
    labels: bytes

    def marks(self, data_set: DataSet) -> dict[str, str]:
        """Names that a copy goes by, by kind of source, the best first."""
        return official_marks(data_set, self.folder)

    def read(self, source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
        """The images of `classes` from an official copy, training and test split.

        Raises InputError, with the file and what is wrong, for a wrong md5, a truncated or damaged
        archive, a pickle that holds more than arrays.
        """
        batches, checksum = official_files(source, data_set, self.folder)
        codes = [data_set.classes.index(name) for name in classes]
        parts: dict[str, list[list[np.ndarray]]] = {
            split: [[] for _ in classes] for split in ("train", "test")
        }
        for name in data_set.unpacked_md5:
            where = f"{source.where}: {name}"
            pixels, labels = _unpickle(where, batches[name], data_set, self.labels)
            split = "test" if name == self.test else "train"
            for part, code in zip(parts[split], codes, strict=True):
                part.append(pixels[labels == code])
        splits = {
            split: stack([np.concatenate(part) for part in per_class])
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
