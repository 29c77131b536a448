"""What holds for every published set: accepted copies, places, downloads, refusals.

That a reader gives the published images is shown beside torchvision's readers.
"""

from dataclasses import replace

import numpy as np
import pytest
from local_server import fail, send
from miniatures import (
    CLASSES,
    MNIST_NAMES,
    Cifar10,
    Cifar100,
    Mnist,
    Stl10,
    Xrays,
    md5,
    prepared,
    refusal,
)

from dpatlas.data.prepare import prepare
from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.cifar10 import CIFAR10, CIFAR100
from dpatlas.data.sets.stl10 import STL10
from dpatlas.errors import RunError

# Of every set: its miniature and the forms of a copy that hold equal images.
ARCHIVES = ("write_archive", "write_unpacked")
SETS = {
    "cifar10": (Cifar10, ARCHIVES),
    "cifar10 as JPEG": (Cifar10, ("write_jpeg_tar", "write_jpeg_folder")),
    "cifar100": (Cifar100, ARCHIVES),
    "stl10": (Stl10, ARCHIVES),
    "stl10-32": (Stl10, ARCHIVES),
    "mnist": (Mnist, ("write_archives", "write_unpacked", "write_packed_anew", "write_mixed")),
    "pneumonia": (Xrays, ARCHIVES),
    "pneumonia_causes": (Xrays, ARCHIVES),
}
IN_ARCHIVES = ["cifar10", "cifar100", "stl10", "stl10-32"]


@pytest.fixture
def copy(request, monkeypatch):
    """Name of the set, its miniature, forms."""
    miniature, forms = SETS[request.param]
    return request.param.partition(" ")[0], miniature(monkeypatch), forms


def each(*names):
    return pytest.mark.parametrize("copy", names or SETS, indirect=True)


@each()
def test_every_form_of_a_copy_and_both_places_give_the_same_records_and_stay_as_they_are(
    copy, tmp_path
):
    name, miniature, forms = copy
    found = []
    for form in forms:
        for folder in ("", name.partition("-")[0].partition("_")[0]):
            root = tmp_path / f"{form}-{folder}"
            (root / folder).mkdir(parents=True)
            getattr(miniature, form)(root / folder)
            before = sorted(root.rglob("*"))
            for path in [*before, root]:
                path.chmod(0o500)
            found.append(prepared(name, root, tmp_path / "out"))
            assert sorted(root.rglob("*")) == before
            root.chmod(0o700)
    assert len({each.sha256 for each in found}) == 1
    counts = DATA_SETS[name].counts
    codes = [DATA_SETS[name].classes.index(str(each)) for each in CLASSES[name]]
    for split, y in (("train", found[0].y_train), ("test", found[0].y_add)):
        assert np.bincount(y).tolist() == [counts[split][code] for code in codes]
    official = [not each.manifest["source"]["kind"].startswith("JPEG") for each in found]
    assert len(set(official)) == 1 and official[0] == ("write_jpeg_tar" not in forms)


@each()
def test_the_order_of_classes_names_the_labels_and_parts_come_from_their_splits_and_share_none(
    copy, tmp_path
):
    name, miniature, forms = copy
    getattr(miniature, forms[0])(tmp_path)
    whole = prepared(name, tmp_path, "whole")
    pair = CLASSES[name][:2]
    one = prepared(name, tmp_path, "one", classes=pair)
    two = prepared(name, tmp_path, "two", classes=pair[::-1])
    for label in (0, 1):
        rows = one.x_train[one.y_train == label], two.x_train[two.y_train == 1 - label]
        assert set(map(bytes, rows[0])) == set(map(bytes, rows[1]))
    found = prepared(name, tmp_path, n_validation=2, n_test=1, selection=3)
    of_train, of_test = (found.x_train, found.x_validation), (found.x_add, found.x_test)
    for x, parts in ((whole.x_train, of_train), (whole.x_add, of_test)):
        assert sorted(bytes(row) for part in parts for row in part) == sorted(map(bytes, x))


@each()
def test_a_missing_copy_is_named_with_all_that_would_do(copy, tmp_path):
    message, entry = refusal(copy[0], tmp_path), DATA_SETS[copy[0]]
    addresses = [file.address for file in entry.files]
    for part in ("data.root", str(tmp_path), *entry.accepts, entry.by_hand, *addresses):
        assert part in message
    assert ("permission to download" in message) == bool(entry.files)


@each(*IN_ARCHIVES)
def test_an_official_copy_that_is_not_whole_is_refused(copy, tmp_path, monkeypatch):
    name, miniature, _ = copy
    folder = miniature.write_unpacked(tmp_path)
    changed, *_, missing = miniature.raw()
    (folder / changed).write_bytes(b"something else")
    assert f"{folder / changed}: found md5" in refusal(name, tmp_path)
    (folder / missing).unlink()
    message = refusal(name, tmp_path)
    assert f"{folder.name}: found no {missing}; allowed: all files of {name}" in message
    content = miniature.archive_bytes()
    for damaged in (content[: len(content) // 2], b"<html>not found</html>"):
        miniature.register(archive=damaged)
        (tmp_path / DATA_SETS[name].files[0].name).write_bytes(damaged)
        assert "a truncated or damaged archive" in refusal(name, tmp_path)
    miniature.write_archive(tmp_path, without=[changed])
    assert f"found no {changed}" in refusal(name, tmp_path)
    path = miniature.write_archive(tmp_path)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    monkeypatch.setattr("tarfile.open", lambda *_: pytest.fail("opened"))
    for content in (whole, whole[:-100]):
        path.write_bytes(content)
        message = refusal(name, tmp_path)
        assert f"{path}: found md5" in message and "remove this one" in message


def test_a_jpeg_copy_holds_the_images_of_the_official_one_which_is_preferred(miniature, tmp_path):
    path = miniature.write_jpeg_tar(tmp_path)
    jpeg = prepared("cifar10", tmp_path, "jpeg")
    miniature.write_archive(tmp_path)
    official = prepared("cifar10", tmp_path, "official")
    kinds = [found.manifest["source"]["kind"] for found in (jpeg, official)]
    assert kinds == ["JPEG copy from a tar file", "official archive"] and path.exists()
    for part in ("train", "add"):
        rows = [np.rint((getattr(each, f"x_{part}") + 1) * 127.5) for each in (jpeg, official)]
        gaps = np.abs(rows[0][:, None] - rows[1][None]).max(axis=2)
        assert (gaps.min(axis=0) <= 6).all() and len(rows[0]) == len(rows[1])


def test_a_second_download_goes_on_with_the_file_that_was_missing(monkeypatch, server, tmp_path):
    def fetch():
        options, cache = {"classes": CLASSES["mnist"]}, {"download_folder": tmp_path}
        prepare("mnist", options, tmp_path / "out", allow_download=True, **cache)

    mnist, names = Mnist(monkeypatch), MNIST_NAMES
    mnist.register(address=server.address)
    server.answers = [*(send(mnist.archives[name]) for name in names[:2]), fail(404)]
    with pytest.raises(RunError, match=names[2]):
        fetch()
    server.paths.clear()
    server.answers = [send(mnist.archives[name]) for name in names[2:]]
    # A cache that lacks files is no copy yet.
    fetch()
    assert server.paths == [f"/mnist/{name}.gz" for name in names[2:]]


@each(*IN_ARCHIVES)
def test_an_archive_is_fetched_where_that_is_allowed(copy, server, tmp_path, monkeypatch):
    name, miniature, _ = copy
    content = miniature.archive_bytes()
    server.answers = [send(content)]
    miniature.register(archive=content)
    file = replace(DATA_SETS[name].files[0], address=f"{server.address}/published")
    monkeypatch.setitem(DATA_SETS, name, replace(DATA_SETS[name], files=(file,)))
    options, cache = {"classes": CLASSES[name]}, tmp_path / "cache"
    assert "permission to download" in refusal(name, tmp_path) and server.paths == []
    for allowed in (True, False):
        prepare(name, options, tmp_path / "out", allow_download=allowed, download_folder=cache)
    assert server.paths == ["/published"]
    assert md5((cache / file.name).read_bytes()) == file.md5


def test_the_small_images_of_stl10_are_means_of_three_by_three_pixels(monkeypatch, tmp_path):
    photographs = Stl10(monkeypatch)
    photographs.write_archive(tmp_path)
    found = prepared("stl10-32", tmp_path)
    for split, part in (("train", "train"), ("test", "add")):
        x, y = getattr(found, f"x_{part}"), getattr(found, f"y_{part}")
        images, labels = photographs.splits[split]
        means = images.reshape(-1, 3, 32, 3, 32, 3).mean((3, 5))
        for label, name in enumerate(CLASSES["stl10"]):
            expected = np.floor(means[labels == STL10.classes.index(name)] + 0.5).astype(np.uint8)
            pixels = np.rint((x[y == label] + 1) * 127.5).astype(np.uint8)
            assert sorted(map(bytes, pixels)) == sorted(map(bytes, expected))


def test_no_choice_of_classes_means_all_of_them_which_cifar_10_does_not_have(monkeypatch, tmp_path):
    Cifar100(monkeypatch).write_archive(tmp_path)
    found = prepared("cifar100", tmp_path, classes=None, n_train=300, n_test=200, n_add=0)
    assert found.classes == CIFAR100.classes
    # The last pixel is the fine label.
    levels = np.rint((found.x_train[:, -1] + 1) * 127.5).astype(int)
    assert levels.tolist() == found.y_train.tolist()
    assert np.bincount(found.y_test).tolist() == [2] * 100
    assert "classes" in refusal("cifar10", tmp_path, "ten", classes=None)


def test_checksums_and_classes_of_stl10_are_those_that_torchvision_expects():
    from torchvision.datasets import STL10 as Published

    assert dict(Published.train_list[:2] + Published.test_list) == STL10.unpacked_md5
    assert STL10.files[0].md5 == Published.tgz_md5 and STL10.files[0].address == Published.url
    # The order of class_names.txt, whose lines the labels 1 to 10 count.
    names = "airplane bird car cat deer dog horse monkey ship truck"
    assert STL10.classes == tuple(names.split())


def test_classes_of_cifar_100_are_the_fine_labels_in_published_order():
    assert len(set(CIFAR100.classes)) == 100 and sorted(CIFAR100.classes) == [*CIFAR100.classes]
    # The order behind the codes of the published pickles, at a few places far apart.
    places = {"apple": 0, "bicycle": 8, "orange": 53, "tank": 85, "wolf": 97, "worm": 99}
    assert {name: CIFAR100.classes.index(name) for name in places} == places
    assert not set(CIFAR100.classes) & set(CIFAR10.classes)
