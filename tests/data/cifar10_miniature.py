"""Miniatures of the published files, in their exact formats, and a registry that expects them."""

import io
import pickle
from pathlib import Path
from typing import ClassVar

import numpy as np
from copies import OfficialCopy, tar_bytes
from PIL import Image

from dpatlas.data.sets.cifar10 import CIFAR10

TRAIN, TEST = 5, 2
BATCHES = (*(f"data_batch_{index}" for index in range(1, 6)), "test_batch")


class Python2Pickler(pickle._Pickler):
    """Writes byte strings the way Python 2 did, which is how the official batches hold them."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        raw = value.encode() if isinstance(value, str) else value
        self.write(pickle.BINSTRING + len(raw).to_bytes(4, "little") + raw)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_string


def batch_bytes(content) -> bytes:
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(content)
    return stream.getvalue().replace(b"cnumpy._core.multiarray", b"cnumpy.core.multiarray")


def jpeg_bytes(pixels) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95)
    return stream.getvalue()


class Miniature(OfficialCopy):
    """CIFAR-10 with 5 training and 2 test images per class."""

    entries, folder = (CIFAR10,), "cifar-10-batches-py"
    per_class: ClassVar = {"train": TRAIN, "test": TEST}
    extras = (("cifar-10-batches-py/batches.meta", b"never read"), ("../evil", b"never read"))

    def __init__(self, patch):
        random = np.random.default_rng(5)
        self.patch = patch
        per_class = {"data_batch": 1, "test_batch": TEST}
        self.batches = {}
        for name in BATCHES:
            labels = random.permutation(np.repeat(np.arange(10), per_class[name[:10]]))
            # Smooth images, so that JPEG keeps them: one grey level per class, a slope on top.
            slope = np.tile(np.arange(32, dtype=np.uint8), 3 * 32)
            data = (20 * labels[:, None] + slope).astype(np.uint8)
            data[:, :1024] += random.integers(0, 9, (len(labels), 1), dtype=np.uint8)
            self.batches[name] = (data, labels)
        self.register()

    def content(self, name) -> dict:
        data, labels = self.batches[name]
        names = [b"%05d.png" % index for index in range(len(labels))]
        return {
            b"batch_label": name.encode(),
            b"labels": labels.tolist(),
            b"data": data,
            b"filenames": names,
        }

    def raw(self, **replaced) -> dict[str, bytes]:
        return {name: batch_bytes(self.content(name)) for name in BATCHES} | replaced

    def images(self) -> dict[str, bytes]:
        """The JPEG copy: name -> bytes."""
        found = {}
        for name, (data, labels) in self.batches.items():
            split = "test" if name == "test_batch" else "train"
            for row, label in zip(data, labels, strict=True):
                folder = f"{split}/{CIFAR10.classes[label]}"
                number = sum(other.startswith(folder) for other in found)
                pixels = row.reshape(3, 32, 32).transpose(1, 2, 0)
                found[f"{folder}/{number:04d}.jpg"] = jpeg_bytes(pixels)
        return found

    def write_jpeg_tar(self, folder, images=None, extras=()) -> Path:
        path = folder / "cifar10_images.tar.xz"
        members = [*extras, *(images or self.images()).items()]
        path.write_bytes(tar_bytes(members, "w:xz"))
        return path

    def write_jpeg_folder(self, folder) -> Path:
        for name, content in self.images().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder
