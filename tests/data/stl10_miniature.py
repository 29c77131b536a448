"""STL-10 in its exact published format with a few images, and a registry that expects it."""

import numpy as np
from copies import OfficialCopy

from dpatlas.data.sets.stl10 import STL10, STL10_32

PER_CLASS = {"train": 3, "test": 2}


class Miniature(OfficialCopy):
    """3 training and 2 test images of each class."""

    entries, folder, per_class = (STL10, STL10_32), "stl10_binary", PER_CLASS
    extras = (
        ("stl10_binary/unlabeled_X.bin", bytes(3 * 96 * 96)),
        ("stl10_binary/class_names.txt", "\n".join(STL10.classes).encode() + b"\n"),
        ("stl10_binary/fold_indices.txt", b"0 1 2 \n"),
    )

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
