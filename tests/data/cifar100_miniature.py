"""CIFAR-100 in its exact published format with a few images, and a registry that expects it."""

import numpy as np
from cifar10_miniature import batch_bytes
from copies import OfficialCopy

from dpatlas.data.sets.cifar100 import CIFAR100

PER_CLASS = {"train": 3, "test": 2}
COARSE = 20


class Miniature(OfficialCopy):
    """3 training and 2 test images of each of the 100 classes; the last pixel is the fine label."""

    entries, folder, per_class = (CIFAR100,), "cifar-100-python", PER_CLASS
    extras = (("cifar-100-python/meta", b"never read"), ("cifar-100-python/file.txt~", b""))

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
