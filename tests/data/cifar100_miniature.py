"""CIFAR-100 in its exact published format with a few images, and a registry that expects it."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from cifar10_miniature import batch_bytes, tar_bytes

from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.cifar100 import CIFAR100

PER_CLASS = {"train": 3, "test": 2}
COARSE = 20


class Miniature:
    """3 training and 2 test images of each of the 100 classes; the last pixel is the fine label."""

    def __init__(self, patch):
        random = np.random.default_rng(7)
        self.patch = patch
        self.batches = {}
        for name, count in PER_CLASS.items():
            labels = random.permutation(np.repeat(np.arange(100), count))
            data = random.integers(0, 256, (len(labels), 3072), dtype=np.uint8)
            data[:, -1] = labels
            self.batches[name] = (data, labels)
        self.register()

    def content(self, name) -> dict:
        data, labels = self.batches[name]
        return {
            b"filenames": [b"image_s_%06d.png" % index for index in range(len(labels))],
            b"batch_label": b"training batch 1 of 1",
            b"fine_labels": labels.tolist(),
            # Never the fine label, so that a reader of the wrong key is caught.
            b"coarse_labels": ((labels + 1) % COARSE).tolist(),
            b"data": data,
        }

    def raw(self, **replaced) -> dict[str, bytes]:
        return {name: batch_bytes(self.content(name)) for name in PER_CLASS} | replaced

    def register(self, archive=b"", batches=None):
        """Make the registry expect these sizes, and `archive` and `batches` as published."""
        entry = replace(
            CIFAR100,
            counts={name: (count,) * 100 for name, count in PER_CLASS.items()},
            files=(replace(CIFAR100.files[0], md5=hashlib.md5(archive).hexdigest()),),
            unpacked_md5={
                name: hashlib.md5(raw).hexdigest() for name, raw in (batches or self.raw()).items()
            },
        )
        self.patch.setitem(DATA_SETS, "cifar100", entry)

    def archive_bytes(self, **replaced) -> bytes:
        extras = [("cifar-100-python/meta", b"never read"), ("cifar-100-python/file.txt~", b"")]
        members = [(f"cifar-100-python/{name}", raw) for name, raw in self.raw(**replaced).items()]
        return tar_bytes([*extras, *members], "w:gz")

    def write_archive(self, folder, **replaced) -> Path:
        """The official archive, with its md5 registered."""
        content = self.archive_bytes(**replaced)
        self.register(archive=content)
        path = folder / "cifar-100-python.tar.gz"
        path.write_bytes(content)
        return path

    def write_unpacked(self, folder) -> Path:
        (folder / "cifar-100-python").mkdir(parents=True)
        for name, raw in self.raw().items():
            (folder / "cifar-100-python" / name).write_bytes(raw)
        return folder / "cifar-100-python"
