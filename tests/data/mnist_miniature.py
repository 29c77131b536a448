"""MNIST in its published format with a few images, and a registry that expects them."""

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.mnist import MNIST

PER_CLASS = {"train": (5, 3, 4, 3, 3, 3, 3, 3, 3, 3), "test": (2, 3) + (2,) * 8}
PREFIX = {"train": "train", "test": "t10k"}
NAMES = tuple(MNIST.unpacked_md5)


def idx_bytes(array) -> bytes:
    """An idx file of unsigned bytes: magic number, sizes (big-endian), values."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return b"\x00\x00\x08" + bytes([array.ndim]) + sizes + array.tobytes()


class Miniature:
    """MNIST with `PER_CLASS` images; the first pixel is the label, the second the place."""

    def __init__(self, patch):
        random = np.random.default_rng(7)
        self.patch = patch
        self.splits = {}
        for split, counts in PER_CLASS.items():
            labels = random.permutation(np.repeat(np.arange(10, dtype=np.uint8), counts))
            images = random.integers(0, 256, (len(labels), 28, 28), dtype=np.uint8)
            images[:, 0, 0], images[:, 0, 1] = labels, np.arange(len(labels))
            self.splits[split] = (images, labels)
        self.contents = {}
        for split, (images, labels) in self.splits.items():
            self.contents[f"{PREFIX[split]}-images-idx3-ubyte"] = idx_bytes(images)
            self.contents[f"{PREFIX[split]}-labels-idx1-ubyte"] = idx_bytes(labels)
        self.archives = {name: gzip.compress(self.contents[name], mtime=0) for name in NAMES}
        self.register()

    def register(self, address="", **contents):
        """Make the registry expect these sizes and md5s, and the archives below `address`.

        contents: what counts as official instead, by the name of the file with `_` for `-`.
        """
        official = {
            name: contents.get(name.replace("-", "_"), self.contents[name]) for name in NAMES
        }
        files = [
            replace(
                file,
                md5=hashlib.md5(self.archives[file.name.removesuffix(".gz")]).hexdigest(),
                address=f"{address}/mnist/{file.name}",
            )
            for file in MNIST.files
        ]
        entry = replace(
            MNIST,
            counts=PER_CLASS,
            files=tuple(files),
            unpacked_md5={name: hashlib.md5(raw).hexdigest() for name, raw in official.items()},
        )
        self.patch.setitem(DATA_SETS, "mnist", entry)

    def write_archives(self, folder: Path):
        for name, content in self.archives.items():
            (folder / f"{name}.gz").write_bytes(content)

    def write_unpacked(self, folder: Path):
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)

    def write_packed_anew(self, folder: Path):
        """The same content in gzip layers with other bytes."""
        for name, content in self.contents.items():
            packed = gzip.compress(content, compresslevel=1, mtime=1)
            assert packed != self.archives[name]
            (folder / f"{name}.gz").write_bytes(packed)

    def write_mixed(self, folder: Path):
        for index, name in enumerate(NAMES):
            if index % 2:
                (folder / name).write_bytes(self.contents[name])
            else:
                (folder / f"{name}.gz").write_bytes(self.archives[name])
