"""Our readers and torchvision's, which unpack to disk or run pickles, see the same images."""

import hashlib

import cifar10_miniature
import cifar100_miniature
import mnist_miniature
import numpy as np
import pytest
import stl10_miniature
from torchvision import datasets

from dpatlas.data.registry import find
from dpatlas.data.sets import cifar10, cifar100, mnist, stl10


def splits_of(module, name, folder):
    entry = find(name)
    source = module.locate(entry, [folder])
    return module.read(source, entry, entry.classes).splits


def ordered(images, labels) -> tuple[np.ndarray, np.ndarray]:
    """Records (n, d) class by class, each in the order of the source, and their labels."""
    labels = np.asarray(labels)
    order = np.argsort(labels, kind="stable")
    return np.asarray(images).reshape(len(labels), -1)[order], labels[order]


def same(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.mark.parametrize("form", ["write_archives", "write_unpacked"])
def test_mnist(monkeypatch, tmp_path, form):
    miniature = mnist_miniature.Miniature(monkeypatch)
    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    getattr(miniature, form)(raw)
    ours = splits_of(mnist, "mnist", raw)
    files = [(f"{name}.gz", md5(miniature.archives[name])) for name in mnist_miniature.NAMES]
    monkeypatch.setattr(datasets.MNIST, "resources", files)
    # It fetches nothing: the archives are there, or their contents are.
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    for split in ("train", "test"):
        theirs = datasets.MNIST(str(tmp_path), train=split == "train", download=True)
        same(ours[split], ordered(theirs.data.numpy(), theirs.targets.numpy()))


@pytest.mark.parametrize(
    ("module", "miniature", "published"),
    [
        (cifar10, cifar10_miniature, datasets.CIFAR10),
        (cifar100, cifar100_miniature, datasets.CIFAR100),
    ],
    ids=["cifar10", "cifar100"],
)
def test_cifar(monkeypatch, tmp_path, module, miniature, published):
    name = module.__name__.rpartition(".")[2]
    small = miniature.Miniature(monkeypatch)
    small.write_archive(tmp_path)
    folder = small.write_unpacked(tmp_path / "unpacked")
    ours = splits_of(module, name, tmp_path)
    same_copy = splits_of(module, name, tmp_path / "unpacked")
    digests = find(name).unpacked_md5
    for attribute in ("train_list", "test_list"):
        files = [(file, digests[file]) for file, _ in getattr(published, attribute)]
        monkeypatch.setattr(published, attribute, files)
    classes = b"the names are not read"
    monkeypatch.setattr(published, "meta", {"filename": "meta", "md5": md5(classes), "key": "k"})
    monkeypatch.setattr(published, "_load_meta", lambda self: None)
    (folder / "meta").write_bytes(classes)
    for split in ("train", "test"):
        theirs = published(str(tmp_path / "unpacked"), train=split == "train")
        # Theirs are turned to (n, rows, columns, channels).
        expected = ordered(theirs.data.transpose(0, 3, 1, 2), theirs.targets)
        same(ours[split], expected)
        same(same_copy[split], expected)


def test_stl10(monkeypatch, tmp_path):
    small = stl10_miniature.Miniature(monkeypatch)
    small.write_archive(tmp_path)
    folder = small.write_unpacked(tmp_path / "unpacked")
    ours = splits_of(stl10, "stl10", tmp_path)
    digests = dict(find("stl10").unpacked_md5)
    unlabelled = bytes(3 * 96 * 96)
    (folder / "unlabeled_X.bin").write_bytes(unlabelled)
    digests["unlabeled_X.bin"] = md5(unlabelled)
    (folder / "class_names.txt").write_text("\n".join(find("stl10").classes) + "\n")
    for attribute in ("train_list", "test_list"):
        files = [[file, digests[file]] for file, _ in getattr(datasets.STL10, attribute)]
        monkeypatch.setattr(datasets.STL10, attribute, files)
    for split in ("train", "test"):
        theirs = datasets.STL10(str(tmp_path / "unpacked"), split=split)
        assert tuple(theirs.classes) == find("stl10").classes
        same(ours[split], ordered(theirs.data, theirs.labels))
