"""Halves of CIFAR-10: which photographs they share, how the private ones are changed."""

from dataclasses import replace

import numpy as np
import pytest
from miniatures import CLASSES, Cifar10, prepared

from dpatlas.data.prepare import prepare
from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.cifar10_halves import CHANGES
from dpatlas.errors import InputError

HALVES = ("cifar10-public", "cifar10-grey", "cifar10-blurred")


@pytest.fixture
def copy(monkeypatch, tmp_path):
    """A function of a name that prepares that set's classes from one miniature copy."""
    Cifar10(monkeypatch).write_jpeg_tar(tmp_path)
    for name in HALVES:
        counts = {"train": (3 if name == "cifar10-public" else 2,) * 10, "test": (2,) * 10}
        monkeypatch.setitem(DATA_SETS, name, replace(DATA_SETS[name], counts=counts))
        monkeypatch.setitem(CLASSES, name, CLASSES["cifar10"])
    return lambda name: prepared(name, tmp_path, name)


def levels(x):
    """Images (images, channels, height, width) of whole levels."""
    return np.rint((x * 255 + 255) / 2).astype(int).reshape(-1, 3, 32, 32)


def test_the_halves_have_all_photographs_once_and_the_same_test_photographs(copy, monkeypatch):
    monkeypatch.setitem(CHANGES, "cifar10-grey", lambda images: images)
    whole, public, private = (copy(name) for name in ("cifar10", "cifar10-public", "cifar10-grey"))
    for part, halves in (
        ("x_train", (public, private)),
        ("x_add", (public,)),
        ("x_add", (private,)),
    ):
        rows = [bytes(row) for half in halves for row in getattr(half, part)]
        assert sorted(rows) == sorted(map(bytes, getattr(whole, part)))
    assert np.bincount(public.y_train).tolist() == [3, 3]
    assert np.bincount(private.y_train).tolist() == [2, 2]


def test_private_photographs_are_grey_or_blurred_each_by_itself(copy, monkeypatch):
    blur = CHANGES["cifar10-blurred"]
    grey, blurred = (levels(copy(name).x_train) for name in HALVES[1:])
    for name in HALVES[1:]:
        monkeypatch.setitem(CHANGES, name, lambda images: images)
    photographs = [levels(copy(name).x_train) for name in HALVES[1:]]
    assert len(photographs[0]) == 4 and all(np.ptp(each, axis=1).max() for each in photographs)
    assert not np.ptp(grey, axis=1).any()
    weighted = np.tensordot(photographs[0], [0.299, 0.587, 0.114], axes=(1, 0))
    assert np.abs(grey[:, 0] - weighted).max() <= 0.5 + 1e-9
    dot = np.zeros((2, 3, 32, 32), dtype=np.uint8)
    dot[0, :, 16, 16] = 255
    found = blur(dot)
    assert not found[1].any() and np.array_equal(found[0, 0], found[0, 0].T)
    across = found[0, 0].sum(0) / found[0, 0].sum()
    assert across @ (np.arange(32) - 16) ** 2 == pytest.approx(2, abs=0.1)
    assert np.abs(blurred - photographs[1]).max() > 0
    assert np.array_equal(blurred, blur(photographs[1].astype(np.uint8)))


def test_a_missing_copy_is_one_of_cifar10(tmp_path):
    options = {"classes": CLASSES["cifar10"]}
    with pytest.raises(InputError, match=r"no copy of cifar10 in .*itself or in cifar10/"):
        prepare("cifar10-grey", options, tmp_path / "out", data_root=tmp_path)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("cifar10-public", "cifar10-grey", False),
        ("cifar10-grey", "cifar10-blurred", True),
        ("cifar10", "cifar10-grey", True),
        ("cifar10-public", "cifar10", True),
        ("cifar10", "cifar10", True),
        ("cifar100", "cifar10-grey", False),
    ],
)
def test_it_is_known_which_sets_may_share_images(one, other, shared):
    assert DATA_SETS[one].shares_images(DATA_SETS[other]) is shared
