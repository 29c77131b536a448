import hashlib
from dataclasses import replace

import numpy as np
import pytest
from cifar10_miniature import batch_bytes
from cifar100_miniature import PER_CLASS, Miniature
from local_server import send

from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import load
from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.cifar10 import CIFAR10
from dpatlas.data.sets.cifar100 import CIFAR100
from dpatlas.errors import InputError

FORMS = ("write_archive", "write_unpacked")
TWO = {"classes": ["baby", "apple"]}


@pytest.fixture
def fine(monkeypatch) -> Miniature:
    return Miniature(monkeypatch)


def prepared(root, options, out):
    # The default cache is relative to the working folder and must not be seen here.
    prepare("cifar100", options, out, data_root=root, download_folder=out / "cache")
    return load(out)


def refusal(root, options, out) -> str:
    with pytest.raises(InputError) as caught:
        prepared(root, options, out)
    assert "\n" not in str(caught.value) and not (out / "arrays.npz").exists()
    return str(caught.value)


def last_levels(x) -> list[int]:
    return np.rint((x[:, -1] + 1) * 127.5).astype(int).tolist()


def test_classes_are_the_hundred_fine_labels_in_published_order():
    assert len(set(CIFAR100.classes)) == 100 and sorted(CIFAR100.classes) == [*CIFAR100.classes]
    assert (CIFAR100.classes[0], CIFAR100.classes[99]) == ("apple", "worm")
    # The order behind the codes of the published pickles, at a few places far apart.
    places = {"bicycle": 8, "keyboard": 39, "orange": 53, "ray": 67, "tank": 85, "wolf": 97}
    assert {name: CIFAR100.classes.index(name) for name in places} == places
    assert not set(CIFAR100.classes) & set(CIFAR10.classes)


def test_photographs_are_scaled_as_those_of_cifar_10():
    assert (CIFAR100.scaling, CIFAR100.image_shape) == (CIFAR10.scaling, CIFAR10.image_shape)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("folder", ["", "cifar100"])
def test_each_accepted_form_gives_the_images_of_the_fine_labels(fine, tmp_path, form, folder):
    (tmp_path / "root" / folder).mkdir(parents=True)
    getattr(fine, form)(tmp_path / "root" / folder)
    found = prepared(tmp_path / "root", TWO, tmp_path / "out")
    for split, x, y in (
        ("train", found.x_train, found.y_train),
        ("test", found.x_add, found.y_add),
    ):
        data, labels = fine.batches[split]
        assert np.bincount(y).tolist() == [PER_CLASS[split]] * 2
        for label, code in enumerate((2, 0)):
            pixels = np.rint((x[y == label] + 1) * 127.5).astype(np.uint8)
            expected = data[labels == code]
            assert sorted(map(bytes, pixels)) == sorted(map(bytes, expected))


def test_packed_and_unpacked_copies_have_the_same_content(fine, tmp_path):
    found = []
    for form in FORMS:
        (tmp_path / form).mkdir()
        getattr(fine, form)(tmp_path / form)
        found.append(prepared(tmp_path / form, TWO, tmp_path / f"out-{form}").sha256)
    assert found[0] == found[1]


def test_no_choice_of_classes_means_all_of_them(fine, tmp_path):
    fine.write_archive(tmp_path)
    options = {"n_train": 300, "n_test": 200, "n_add": 0}
    found = prepared(tmp_path, options, tmp_path / "out")
    assert found.classes == CIFAR100.classes
    assert last_levels(found.x_train) == found.y_train.tolist()
    assert np.bincount(found.y_test).tolist() == [2] * 100


def test_cifar_10_still_asks_which_classes(tmp_path):
    with pytest.raises(InputError, match="classes"):
        prepare("cifar10", {}, tmp_path / "out", data_root=tmp_path)


def test_archive_with_another_md5_is_never_unpickled(fine, tmp_path, monkeypatch):
    path = fine.write_archive(tmp_path)
    path.write_bytes(fine.archive_bytes(test=b"not the published batch"))
    monkeypatch.setattr("dpatlas.data.cifar._unpickle", lambda *_: pytest.fail("unpickled"))
    message = refusal(tmp_path, TWO, tmp_path / "out")
    assert "cifar-100-python.tar.gz" in message and "md5" in message


def test_changed_and_missing_batches_of_an_unpacked_copy_are_named(fine, tmp_path):
    folder = fine.write_unpacked(tmp_path)
    (folder / "train").write_bytes(b"something else")
    assert "cifar-100-python/train: found md5" in refusal(tmp_path, TWO, tmp_path / "out")
    (folder / "train").unlink()
    message = refusal(tmp_path, TWO, tmp_path / "out")
    assert "cifar-100-python: found no train; allowed: all files of cifar100" in message


def test_a_batch_of_cifar_10_is_not_taken_for_one_of_cifar_100(fine, tmp_path):
    data, labels = fine.batches["train"]
    fine.write_archive(tmp_path, train=batch_bytes({b"data": data, b"labels": labels.tolist()}))
    assert "a batch of cifar100" in refusal(tmp_path, TWO, tmp_path / "out")


def test_wrong_count_names_class_and_split(fine, tmp_path):
    data, labels = fine.batches["test"]
    fine.batches["test"] = (data, np.where(labels == 0, 1, labels))
    fine.write_archive(tmp_path)
    message = refusal(tmp_path, TWO, tmp_path / "out")
    assert "0 test images of class apple" in message and "2 of them" in message


def test_the_archive_is_fetched_where_that_is_allowed(fine, server, tmp_path, monkeypatch):
    content = fine.archive_bytes()
    server.answers = [send(content)]
    fine.register(archive=content)
    entry = DATA_SETS["cifar100"]
    address = f"{server.address}/~kriz/cifar-100-python.tar.gz"
    file = replace(entry.files[0], address=address)
    monkeypatch.setitem(DATA_SETS, "cifar100", replace(entry, files=(file,)))
    cache = tmp_path / "cache"
    prepare("cifar100", TWO, tmp_path / "out", allow_download=True, download_folder=cache)
    assert server.paths == ["/~kriz/cifar-100-python.tar.gz"]
    kept = (cache / "cifar-100-python.tar.gz").read_bytes()
    assert hashlib.md5(kept).hexdigest() == file.md5


def test_missing_source_says_what_is_looked_for_and_where(fine, tmp_path):
    message = refusal(tmp_path, TWO, tmp_path / "out")
    for part in ("data.root", "cifar-100-python.tar.gz", "cifar-100-python/", "cs.toronto.edu"):
        assert part in message
