import numpy as np
import pytest
from cifar10_miniature import batch_bytes
from cifar100_miniature import Miniature
from copies import prepared, refusal

from dpatlas.data.prepare import prepare
from dpatlas.data.sets.cifar10 import CIFAR10
from dpatlas.data.sets.cifar100 import CIFAR100
from dpatlas.errors import InputError


@pytest.fixture
def fine(monkeypatch) -> Miniature:
    return Miniature(monkeypatch)


def test_classes_are_the_hundred_fine_labels_in_published_order():
    assert len(set(CIFAR100.classes)) == 100 and sorted(CIFAR100.classes) == [*CIFAR100.classes]
    assert (CIFAR100.classes[0], CIFAR100.classes[99]) == ("apple", "worm")
    # The order behind the codes of the published pickles, at a few places far apart.
    places = {"bicycle": 8, "keyboard": 39, "orange": 53, "ray": 67, "tank": 85, "wolf": 97}
    assert {name: CIFAR100.classes.index(name) for name in places} == places
    assert not set(CIFAR100.classes) & set(CIFAR10.classes)


def test_photographs_are_scaled_as_those_of_cifar_10():
    assert (CIFAR100.scaling, CIFAR100.image_shape) == (CIFAR10.scaling, CIFAR10.image_shape)


def test_no_choice_of_classes_means_all_of_them_which_cifar_10_does_not_have(fine, tmp_path):
    fine.write_archive(tmp_path)
    options = {"n_train": 300, "n_test": 200, "n_add": 0}
    found = prepared("cifar100", tmp_path, tmp_path / "out", options)
    assert found.classes == CIFAR100.classes
    # The last pixel is the fine label.
    levels = np.rint((found.x_train[:, -1] + 1) * 127.5).astype(int)
    assert levels.tolist() == found.y_train.tolist()
    assert np.bincount(found.y_test).tolist() == [2] * 100
    with pytest.raises(InputError, match="classes"):
        prepare("cifar10", {}, tmp_path / "out", data_root=tmp_path)


def test_a_batch_of_cifar_10_is_not_taken_for_one_of_cifar_100(fine, tmp_path):
    data, labels = fine.batches["train"]
    fine.write_archive(tmp_path, train=batch_bytes({b"data": data, b"labels": labels.tolist()}))
    options = {"classes": ["baby", "apple"]}
    assert "a batch of cifar100" in refusal("cifar100", tmp_path, tmp_path / "out", options)
