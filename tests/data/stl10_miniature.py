"""STL-10 in its exact published format with a few images, and a registry that expects it."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from cifar10_miniature import tar_bytes

from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.stl10 import STL10, STL10_32

PER_CLASS = {"train": 3, "test": 2}
FILES = ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")
# Where the official archive has them.
ORDER = ("test_X.bin", "test_y.bin", "train_X.bin", "train_y.bin")


class Miniature:
    """3 training and 2 test images of each class."""

    def __init__(self, patch):
        random = np.random.default_rng(11)
        self.patch = patch
        self.splits = {}
        for split, count in PER_CLASS.items():
            labels = random.permutation(np.repeat(np.arange(10), count))
            images = random.integers(0, 256, (len(labels), 3, 96, 96), dtype=np.uint8)
            self.splits[split] = (images, labels)
        self.register()

    def raw(self, **replaced) -> dict[str, bytes]:
        """The four binary files; `train_X=...` stands for `train_X.bin`."""
        found = {}
        for split, (images, labels) in self.splits.items():
            # A channel's bytes run down its columns.
            found[f"{split}_X.bin"] = images.transpose(0, 1, 3, 2).tobytes()
            found[f"{split}_y.bin"] = (labels + 1).astype(np.uint8).tobytes()
        return found | {f"{name}.bin": content for name, content in replaced.items()}

    def register(self, archive=b"", files=None):
        """Make the registry expect these sizes, and `archive` and `files` as published."""
        files = files or self.raw()
        for entry in (STL10, STL10_32):
            changed = replace(
                entry,
                counts={split: (count,) * 10 for split, count in PER_CLASS.items()},
                files=(replace(entry.files[0], md5=hashlib.md5(archive).hexdigest()),),
                unpacked_md5={name: hashlib.md5(files[name]).hexdigest() for name in FILES},
            )
            self.patch.setitem(DATA_SETS, entry.name, changed)

    def archive_bytes(self, without=(), **replaced) -> bytes:
        raw = self.raw(**replaced)
        names = "\n".join(STL10.classes).encode()
        members = [
            *((name, raw[name]) for name in ORDER if name not in without),
            ("unlabeled_X.bin", bytes(3 * 96 * 96)),
            ("class_names.txt", names + b"\n"),
            ("fold_indices.txt", b"0 1 2 \n"),
        ]
        return tar_bytes([(f"stl10_binary/{name}", content) for name, content in members], "w:gz")

    def write_archive(self, folder, **changes) -> Path:
        """The official archive, with its md5 registered."""
        content = self.archive_bytes(**changes)
        self.register(archive=content)
        path = folder / "stl10_binary.tar.gz"
        path.write_bytes(content)
        return path

    def write_unpacked(self, folder) -> Path:
        (folder / "stl10_binary").mkdir(parents=True)
        for name, content in self.raw().items():
            (folder / "stl10_binary" / name).write_bytes(content)
        return folder / "stl10_binary"
