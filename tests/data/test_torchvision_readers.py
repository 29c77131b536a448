"""Our readers and torchvision's, which unpack to disk or run pickles, see the same images."""

import numpy as np
import pytest
from miniatures import MNIST_NAMES, Cifar10, Cifar100, Mnist, Stl10, md5
from torchvision import datasets

from dpatlas.data.registry import find, reader


def splits_of(name, folder):
    entry, module = find(name), reader(name)
    return module.read(module.locate(entry, [folder]), entry, entry.classes).splits


def same(found, images, labels):
    """Records (n, d) class by class, each in the order of the source, and their labels."""
    labels = np.asarray(labels)
    order = np.argsort(labels, kind="stable")
    np.testing.assert_array_equal(found[0], np.asarray(images).reshape(len(labels), -1)[order])
    np.testing.assert_array_equal(found[1], labels[order])


@pytest.mark.parametrize("form", ["write_archives", "write_unpacked"])
def test_mnist(monkeypatch, tmp_path, form):
    miniature = Mnist(monkeypatch)
    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    getattr(miniature, form)(raw)
    ours = splits_of("mnist", raw)
    files = [(f"{name}.gz", md5(miniature.archives[name])) for name in MNIST_NAMES]
    monkeypatch.setattr(datasets.MNIST, "resources", files)
    # It fetches nothing: the archives are there, or their contents are.
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    for split in ("train", "test"):
        theirs = datasets.MNIST(str(tmp_path), train=split == "train", download=True)
        same(ours[split], theirs.data.numpy(), theirs.targets.numpy())


@pytest.mark.parametrize(
    ("name", "miniature", "published"),
    [("cifar10", Cifar10, datasets.CIFAR10), ("cifar100", Cifar100, datasets.CIFAR100)],
)
def test_cifar(monkeypatch, tmp_path, name, miniature, published):
    folder = miniature(monkeypatch).write_unpacked(tmp_path)
    ours = splits_of(name, tmp_path)
    digests = find(name).unpacked_md5
    for attribute in ("train_list", "test_list"):
        files = [(file, digests[file]) for file, _ in getattr(published, attribute)]
        monkeypatch.setattr(published, attribute, files)
    classes = b"the names are not read"
    monkeypatch.setattr(published, "meta", {"filename": "meta", "md5": md5(classes), "key": "k"})
    monkeypatch.setattr(published, "_load_meta", lambda self: None)
    (folder / "meta").write_bytes(classes)
    for split in ("train", "test"):
        theirs = published(str(tmp_path), train=split == "train")
        # Theirs are turned to (n, rows, columns, channels).
        same(ours[split], theirs.data.transpose(0, 3, 1, 2), theirs.targets)


def test_stl10(monkeypatch, tmp_path):
    folder = Stl10(monkeypatch).write_unpacked(tmp_path)
    ours = splits_of("stl10", tmp_path)
    digests = dict(find("stl10").unpacked_md5)
    unlabelled = bytes(3 * 96 * 96)
    (folder / "unlabeled_X.bin").write_bytes(unlabelled)
    digests["unlabeled_X.bin"] = md5(unlabelled)
    (folder / "class_names.txt").write_text("\n".join(find("stl10").classes) + "\n")
    for attribute in ("train_list", "test_list"):
        files = [[file, digests[file]] for file, _ in getattr(datasets.STL10, attribute)]
        monkeypatch.setattr(datasets.STL10, attribute, files)
    for split in ("train", "test"):
        theirs = datasets.STL10(str(tmp_path), split=split)
        assert tuple(theirs.classes) == find("stl10").classes
        same(ours[split], theirs.data, theirs.labels)
