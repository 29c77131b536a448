"""Readers of CIFAR-10 and of CIFAR-100 with its 100 fine labels.

A copy is the official archive, packed or not, or for CIFAR-10 a JPEG copy. It is read in place, and
not by torchvision, which would unpickle whatever a batch asks for. Names inside a JPEG copy never
become paths either: a member counts if its whole name fits.
"""

import hashlib
import io
import lzma
import pickle
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from dpatlas.base.canonical import sha256
from dpatlas.data.bounded import Bounded, jpeg, read_file
from dpatlas.data.definitions import DataSet, RemoteFile, Scaling
from dpatlas.data.official import (
    DAMAGED,
    by_class,
    by_split,
    damaged,
    first_copy,
    folders,
    member_bytes,
    official_files,
    official_marks,
)
from dpatlas.data.sources import Images, Source, file_digest
from dpatlas.errors import InputError

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR10 = DataSet(
    name="cifar10",
    what="60,000 colour photographs of 32 x 32 pixels in ten classes",
    classes=tuple(CLASSES.split()),
    image_shape=(3, 32, 32),
    counts={"train": (5000,) * 10, "test": (1000,) * 10},
    scaling=Scaling(multiply=2, subtract=255, divide=255),
    licence="no licence stated; the authors ask for a citation of Krizhevsky (2009)",
    version="2009, for Python",
    files=(
        RemoteFile(
            name="cifar-10-python.tar.gz",
            md5="c58f30108f718f92721af3b95e74349a",
            address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            size=170_498_071,
        ),
    ),
    accepts=(
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py/",
        "cifar10_images.tar.xz",
        "train/CLASS/NNNN.jpg with test/CLASS/NNNN.jpg",
    ),
    unpacked_md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    pretraining=True,
)
FINE_LABELS = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house
kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table
tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
CIFAR100 = replace(
    CIFAR10,
    name="cifar100",
    what="60,000 colour photographs of 32 x 32 pixels in 100 classes, the fine labels",
    classes=tuple(FINE_LABELS.split()),
    counts={"train": (500,) * 100, "test": (100,) * 100},
    files=(
        RemoteFile(
            name="cifar-100-python.tar.gz",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            size=169_001_437,
        ),
    ),
    accepts=("cifar-100-python.tar.gz", "cifar-100-python/"),
    unpacked_md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
    whole_by_default=True,
    only_public=True,
)
SETS = (CIFAR10, CIFAR100)

# Keys of the labels in a batch.
LABELS = {"cifar10": b"labels", "cifar100": b"fine_labels"}
SPLITS = ("train", "test")
IMAGE_NAME = re.compile(r"(?:\./)?(?P<split>train|test)/(?P<label>[a-z]+)/(?P<number>\d{4})\.jpg")

JPEG_TAR = "JPEG copy from a tar file"
JPEG_FOLDER = "JPEG copy from a folder"
# A copy of good quality has 93 million bytes when unpacked and no image above 1,200.
LARGEST_MEMBER = 1 << 16
LARGEST_TAR = 1 << 29


def locate(data_set: DataSet, searched: Sequence[Path]) -> Source | None:
    """The best copy in `searched` or in their sub-folders `cifar10`: official before JPEG."""
    marks = official_marks(data_set)
    if data_set.name == "cifar10":
        marks |= {JPEG_TAR: "cifar10_images.tar.xz", JPEG_FOLDER: f"train/{data_set.classes[0]}/"}
    source = first_copy(marks, folders(searched, data_set.name))
    if source is not None and source.kind == JPEG_FOLDER:
        return Source(JPEG_FOLDER, source.required_path.parents[1])
    return source


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`, training and test split.

    Raises InputError, with the file and what is wrong, for a wrong md5, a truncated or damaged
    archive, a pickle that holds more than arrays, an image that cannot be decoded or has another
    size, files of absurd sizes.
    """
    readers = {JPEG_TAR: _read_tar, JPEG_FOLDER: _read_folder}
    if source.kind in readers:
        return readers[source.kind](source.required_path, data_set, classes)
    files, checksum = official_files(source, data_set)
    batches: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {split: [] for split in SPLITS}
    for name in data_set.unpacked_md5:
        where, split = f"{source.where}: {name}", "test" if name.startswith("test") else "train"
        batch = _unpickle(where, files[name], data_set, LABELS[data_set.name])
        batches[split].append(batch)
    codes = [data_set.classes.index(name) for name in classes]
    splits = {}
    for split, pairs in batches.items():
        pixels, labels = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        splits[split] = by_class(pixels, labels, codes)
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


def _read_tar(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    def members() -> Iterator[tuple[re.Match[str], bytes]]:
        with lzma.open(path) as stream:
            bounded = Bounded(stream, LARGEST_TAR, str(path))
            with tarfile.open(fileobj=cast(BinaryIO, bounded), mode="r|") as archive:
                for member in archive:
                    match = _wanted(member.name, classes)
                    if member.isreg() and match is not None:
                        yield match, member_bytes(str(path), archive, member, LARGEST_MEMBER)

    try:
        splits = _from_images(path, members(), data_set, classes)
    except DAMAGED as error:
        raise damaged(path, error) from None
    return Images(splits, f"sha256:{file_digest(path, 'sha256')}")


def _read_folder(path: Path, data_set: DataSet, classes: Sequence[str]) -> Images:
    missing = [
        f"{split}/{name}"
        for split in SPLITS
        for name in classes
        if not (path / split / name).is_dir()
    ]
    if missing:
        raise InputError(str(path), f"no folders {', '.join(missing)}", "one for each class")
    digest = hashlib.sha256()

    def files() -> Iterator[tuple[re.Match[str], bytes]]:
        for split in SPLITS:
            for label in classes:
                for file in sorted((path / split / label).iterdir()):
                    match = _wanted(f"{split}/{label}/{file.name}", classes)
                    if match is not None:
                        content = read_file(file, LARGEST_MEMBER)
                        digest.update(f"{match[0]} {sha256(content)}\n".encode())
                        yield match, content

    splits = _from_images(path, files(), data_set, classes)
    return Images(splits, f"sha256:{digest.hexdigest()}")


def _wanted(name: str, classes: Sequence[str]) -> re.Match[str] | None:
    match = IMAGE_NAME.fullmatch(name)
    return match if match is not None and match["label"] in classes else None


def _from_images(
    path: Path,
    files: Iterable[tuple[re.Match[str], bytes]],
    data_set: DataSet,
    classes: Sequence[str],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The images of each class in the order of their numbers."""
    images: dict[tuple[str, ...], np.ndarray] = {}
    for match, content in files:
        where, place = f"{path}: {match[0]}", match.groups()
        if place in images:
            raise InputError(where, "this image a second time", "every image once")
        images[place] = _decode(where, content, data_set)
    listed = [(split, name, images[split, name, each]) for split, name, each in sorted(images)]
    return by_split(listed, SPLITS, data_set, classes)


def _decode(where: str, content: bytes, data_set: DataSet) -> np.ndarray:
    """One image as (d,) uint8, channels first."""
    channels, height, width = data_set.image_shape
    allowed = f"a JPEG image of {width} x {height} pixels and {channels} channels"
    with jpeg(where, content, allowed) as image:
        # The header is enough to refuse an image of another size before it is decoded.
        found = f"{image.width} x {image.height} pixels, {len(image.getbands())} channels"
        if (len(image.getbands()), image.height, image.width) != data_set.image_shape:
            raise InputError(where, found, allowed)
        return np.asarray(image).transpose(2, 0, 1).reshape(-1)
