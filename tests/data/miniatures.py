"""Miniatures of the published sets, in their exact formats, and a registry that expects them."""

import gzip
import hashlib
import io
import pickle
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import Prepared, load
from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets import pneumonia
from dpatlas.data.sets.cifar10 import CIFAR10, CIFAR100
from dpatlas.data.sets.mnist import MNIST
from dpatlas.data.sets.stl10 import STL10, STL10_32
from dpatlas.errors import InputError

# What is prepared of a set where nothing else is said.
CLASSES = {
    "cifar10": ["airplane", "automobile"],
    "cifar100": ["baby", "apple"],
    "stl10": ["monkey", "airplane"],
    "stl10-32": ["monkey", "airplane"],
    "mnist": [7, 0],
    "pneumonia": ["normal", "pneumonia"],
}
for _name in (entry.name for entry in pneumonia.SETS[1:]):
    CLASSES[_name] = ["normal", "bacteria", "virus"]


def prepared(name, root, out="out", **options) -> Prepared:
    """The copy in `root`, prepared into the folder `out`, which may lie in it."""
    # The default cache is relative to the working folder and must not be seen here.
    folders = {"data_root": root, "download_folder": root / out / "cache"}
    prepare(name, {"classes": CLASSES[name], **options}, root / out, **folders)
    return load(root / out)


def refusal(name, root, out="out", **options) -> str:
    """The message, in one line; nothing is written."""
    with pytest.raises(InputError) as caught:
        prepared(name, root, out, **options)
    assert "\n" not in str(caught.value)
    assert not any((root / out / file).exists() for file in ("arrays.npz", "manifest.json"))
    return str(caught.value)


class Hostile:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (exec, ("open('proof', 'w').close()",))


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def tar_bytes(members, mode) -> bytes:
    """A packed tar file; a member is (name, bytes) or a ready TarInfo."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return stream.getvalue()


def zip_bytes(members, compression=zipfile.ZIP_DEFLATED) -> bytes:
    """An archive; a member is (name or ZipInfo, bytes)."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def jpeg_bytes(pixels) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def npy_bytes(array) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=True)
    return stream.getvalue()


def idx_bytes(array) -> bytes:
    """An idx file of unsigned bytes: magic number, sizes (big-endian), values."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return b"\x00\x00\x08" + bytes([array.ndim]) + sizes + array.tobytes()


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


def write_files(folder: Path, files) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def random_parts(per_class, classes, shape, seed) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images (n, *shape) and their labels in no order, of every part in `per_class`."""
    random, parts = np.random.default_rng(seed), {}
    for part, counts in per_class.items():
        labels = random.permutation(np.repeat(np.arange(classes, dtype=np.uint8), counts))
        parts[part] = random.integers(0, 256, (len(labels), *shape), dtype=np.uint8), labels
    return parts


class OfficialCopy:
    """A small official archive, packed or not, and a registry that expects it.

    Of a subclass: `entries`, which share the archive; `folder`, inside it; `per_class`, images by
    split; `raw(**replaced)`, the files that count, by name; `extras`, members that are never read.
    """

    per_class: ClassVar = {"train": 3, "test": 2}
    extras = ()

    def register(self, archive=b"", files=None):
        """Make the registry expect these sizes, and `archive` and `files` as published."""
        files = files or self.raw()
        for entry in self.entries:
            changed = replace(
                entry,
                counts={split: (n,) * len(entry.classes) for split, n in self.per_class.items()},
                files=(replace(entry.files[0], md5=md5(archive)),),
                unpacked_md5={name: md5(files[name]) for name in entry.unpacked_md5},
            )
            self.patch.setitem(DATA_SETS, entry.name, changed)

    def archive_bytes(self, without=(), **replaced) -> bytes:
        files = self.raw(**replaced)
        members = [(f"{self.folder}/{name}", files[name]) for name in files if name not in without]
        return tar_bytes([*self.extras, *members], "w:gz")

    def write_archive(self, root, **changes):
        """The official archive, with its md5 registered."""
        content = self.archive_bytes(**changes)
        self.register(archive=content)
        path = root / self.entries[0].files[0].name
        path.write_bytes(content)
        return path

    def write_unpacked(self, root):
        return write_files(root / self.folder, self.raw())


class Cifar10(OfficialCopy):
    """CIFAR-10 with 5 training and 2 test images per class."""

    entries, folder = (CIFAR10,), "cifar-10-batches-py"
    per_class: ClassVar = {"train": 5, "test": 2}
    extras = (("cifar-10-batches-py/batches.meta", b"never read"), ("../evil", b"never read"))

    def __init__(self, patch):
        random = np.random.default_rng(5)
        self.patch = patch
        per_batch = {f"data_batch_{index}": 1 for index in range(1, 6)} | {"test_batch": 2}
        self.batches = {}
        for name, count in per_batch.items():
            labels = random.permutation(np.repeat(np.arange(10), count))
            # Smooth images, so that JPEG keeps them: one grey level per class, a slope on top.
            slope = np.tile(np.arange(32, dtype=np.uint8), 3 * 32)
            data = (20 * labels[:, None] + slope).astype(np.uint8)
            data[:, :1024] += random.integers(0, 9, (len(labels), 1), dtype=np.uint8)
            self.batches[name] = (data, labels)
        self.register()

    def content(self, name) -> dict:
        data, labels = self.batches[name]
        names = [b"%05d.png" % index for index in range(len(labels))]
        about = {b"batch_label": name.encode(), b"filenames": names}
        return about | {b"labels": labels.tolist(), b"data": data}

    def raw(self, **replaced) -> dict[str, bytes]:
        return {name: batch_bytes(self.content(name)) for name in self.batches} | replaced

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
        return write_files(folder, self.images())


class Cifar100(OfficialCopy):
    """3 training and 2 test images of each of the 100 classes; the last pixel is the fine label."""

    entries, folder = (CIFAR100,), "cifar-100-python"
    extras = (("cifar-100-python/meta", b"never read"), ("cifar-100-python/file.txt~", b""))

    def __init__(self, patch):
        self.patch = patch
        self.batches = random_parts(self.per_class, 100, (3072,), 7)
        for data, labels in self.batches.values():
            data[:, -1] = labels
        self.register()

    def content(self, name) -> dict:
        data, labels = self.batches[name]
        return {
            b"filenames": [b"image_s_%06d.png" % index for index in range(len(labels))],
            b"batch_label": b"training batch 1 of 1",
            b"fine_labels": labels.tolist(),
            # Never the fine label, so that a reader of the wrong key is caught.
            b"coarse_labels": ((labels + 1) % 20).tolist(),
            b"data": data,
        }

    raw = Cifar10.raw


class Stl10(OfficialCopy):
    """3 training and 2 test images of each class."""

    entries, folder = (STL10, STL10_32), "stl10_binary"
    extras = (
        ("stl10_binary/unlabeled_X.bin", bytes(3 * 96 * 96)),
        ("stl10_binary/class_names.txt", "\n".join(STL10.classes).encode() + b"\n"),
        ("stl10_binary/fold_indices.txt", b"0 1 2 \n"),
    )

    def __init__(self, patch):
        self.patch = patch
        self.splits = random_parts(self.per_class, 10, (3, 96, 96), 11)
        self.register()

    def raw(self, **replaced) -> dict[str, bytes]:
        """The four binary files; `train_X=...` stands for `train_X.bin`."""
        found = {}
        for split, (images, labels) in self.splits.items():
            # A channel's bytes run down its columns.
            found[f"{split}_X.bin"] = images.transpose(0, 1, 3, 2).tobytes()
            found[f"{split}_y.bin"] = (labels + 1).tobytes()
        return found | {f"{name}.bin": content for name, content in replaced.items()}


MNIST_NAMES = tuple(MNIST.unpacked_md5)


class Mnist:
    """MNIST with a few images; the first pixel is the label, the second the place."""

    per_class: ClassVar = {"train": (5, 3, 4, *(3,) * 7), "test": (2, 3, *(2,) * 8)}

    def __init__(self, patch):
        self.patch = patch
        self.splits = random_parts(self.per_class, 10, (28, 28), 7)
        self.contents = {}
        for split, (images, labels) in self.splits.items():
            images[:, 0, 0], images[:, 0, 1] = labels, np.arange(len(labels))
            prefix = {"train": "train", "test": "t10k"}[split]
            self.contents[f"{prefix}-images-idx3-ubyte"] = idx_bytes(images)
            self.contents[f"{prefix}-labels-idx1-ubyte"] = idx_bytes(labels)
        self.archives = {name: gzip.compress(self.contents[name], mtime=0) for name in MNIST_NAMES}
        self.register()

    def register(self, address="", **contents):
        """Make the registry expect these sizes and md5s, and the archives below `address`.

        contents: what counts as official instead, by the name of the file with `_` for `-`.
        """
        files = [
            replace(
                file,
                md5=md5(self.archives[file.name.removesuffix(".gz")]),
                address=f"{address}/mnist/{file.name}",
            )
            for file in MNIST.files
        ]
        official = {
            name: md5(contents.get(name.replace("-", "_"), self.contents[name]))
            for name in MNIST_NAMES
        }
        entry = replace(MNIST, counts=self.per_class, files=tuple(files), unpacked_md5=official)
        self.patch.setitem(DATA_SETS, "mnist", entry)

    def write_archives(self, folder: Path):
        write_files(folder, {f"{name}.gz": packed for name, packed in self.archives.items()})

    def write_unpacked(self, folder: Path):
        write_files(folder, self.contents)

    def write_packed_anew(self, folder: Path):
        """The same content in gzip layers with other bytes."""
        for name, content in self.contents.items():
            packed = gzip.compress(content, compresslevel=1, mtime=1)
            assert packed != self.archives[name]
            (folder / f"{name}.gz").write_bytes(packed)

    def write_mixed(self, folder: Path):
        self.write_archives(folder)
        for name in MNIST_NAMES[1::2]:
            (folder / f"{name}.gz").unlink()
            (folder / name).write_bytes(self.contents[name])


class Xrays:
    """The chest X-rays in their two formats, as flat images.

    An image has the grey level `LEVELS` of its cause plus the image's number in its split.
    """

    LEVELS: ClassVar = {"normal": 40, "bacteria": 120, "virus": 200}
    PER_CLASS: ClassVar = {"train": (4, 7), "test": (2, 4)}
    PER_CAUSE: ClassVar = {"train": (4, 4, 3), "test": (2, 3, 1)}
    # Of the list of labels: all but one training image.
    TOTALS: ClassVar = {"train": 10, "test": 6}
    VALIDATION = 3
    # Width and height of the images, one after the other: no two sides need be alike.
    SIZES = ((61, 40), (40, 61), (28, 28), (90, 33))

    def __init__(self, patch):
        for entry in pneumonia.SETS:
            counts = self.PER_CLASS if entry is pneumonia.PNEUMONIA else self.PER_CAUSE
            sizes = {"totals": self.TOTALS} if entry.label_file else {"counts": counts}
            patch.setitem(DATA_SETS, entry.name, replace(entry, **sizes))
        self.levels = {"train": [], "test": []}
        for split, counts in self.PER_CAUSE.items():
            causes = np.repeat(list(self.LEVELS), counts)
            self.levels[split] = [self.LEVELS[cause] + i for i, cause in enumerate(causes)]

    def images(self) -> dict[str, bytes]:
        """The members of the archive that are images: name -> JPEG."""
        found = {}
        for split, levels in self.levels.items():
            for number, level in enumerate(levels):
                cause = [each for each in self.LEVELS if level >= self.LEVELS[each]][-1]
                name = {
                    "normal": f"NORMAL/NORMAL2-IM-{number:04d}-0001",
                    "bacteria": f"PNEUMONIA/person{number}_bacteria_{number + 1}",
                    "virus": f"PNEUMONIA/VIRUS-{number}-0001",
                }[cause]
                width, height = self.SIZES[number % len(self.SIZES)]
                # One image in three is in colour, as some published ones are.
                shape = (height, width, 3) if number % 3 == 2 else (height, width)
                pixels = np.full(shape, level, np.uint8)
                found[f"chest_xray/{split}/{name}.jpeg"] = jpeg_bytes(pixels)
        return found

    def write_archive(self, folder: Path, images=None, extras=()) -> Path:
        """`ChestXRay2017.zip`, with the folders and leftovers that such archives have."""
        junk = [
            ("chest_xray/", b""),
            ("chest_xray/train/NORMAL/", b""),
            ("chest_xray/train/NORMAL/.DS_Store", b"no image"),
            ("__MACOSX/chest_xray/train/NORMAL/._NORMAL2-IM-0000-0001.jpeg", b"no image"),
            ("chest_xray/train/PNEUMONIA/._person1_bacteria_1.jpeg", b"no image"),
        ]
        members = [*junk, *extras, *(self.images() if images is None else images).items()]
        path = folder / "ChestXRay2017.zip"
        path.write_bytes(zip_bytes(members))
        return path

    def write_unpacked(self, folder: Path, images=None) -> Path:
        """The folder `chest_xray`, with a leftover that is no image."""
        leftover = {"chest_xray/train/NORMAL/.DS_Store": b"no image"}
        return write_files(folder, (images or self.images()) | leftover) / "chest_xray"

    def labels(self) -> list[tuple[str, str]]:
        """The list of labels, in no order: all images but a virus of the training split."""
        rows = [
            (name, next(cause for cause in self.LEVELS if cause in name.lower()))
            for name in self.images()
        ]
        left_out = next(row for row in rows if row[1] == "virus" and "/train/" in row[0])
        return [row for row in reversed(rows) if row != left_out]

    def write_labels(self, folder: Path, rows=None, header="file,label") -> Path:
        """`chest_xray_labels.csv`, to lie beside a copy."""
        path = folder / "chest_xray_labels.csv"
        rows = self.labels() if rows is None else rows
        path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
        return path

    def arrays(self) -> dict[str, np.ndarray]:
        """The six arrays of PneumoniaMNIST."""
        random = np.random.default_rng(11)
        order = {split: random.permutation(self.levels[split]) for split in ("train", "test")}
        parts = {
            "train": order["train"][: -self.VALIDATION],
            "val": order["train"][-self.VALIDATION :],
            "test": order["test"],
        }
        found = {}
        for part, values in parts.items():
            found[f"{part}_images"] = np.tile(values[:, None, None], (1, 28, 28)).astype(np.uint8)
            labels = values >= self.LEVELS["bacteria"]
            found[f"{part}_labels"] = labels.astype(np.uint8)[:, None]
        return found

    def write_npz(self, folder: Path, **replaced) -> Path:
        """`pneumoniamnist.npz`; arrays or ready bytes may be replaced, None leaves one out."""
        members = [
            (f"{name}.npy", value if isinstance(value, bytes) else npy_bytes(value))
            for name, value in (self.arrays() | replaced).items()
            if value is not None
        ]
        path = folder / "pneumoniamnist.npz"
        path.write_bytes(zip_bytes(members))
        return path
