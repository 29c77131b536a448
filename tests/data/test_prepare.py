import json
import os

import numpy as np
import pytest

from dpatlas.data.definitions import scale
from dpatlas.data.prepare import main, prepare
from dpatlas.data.prepared import load
from dpatlas.data.sets.cifar10 import CIFAR10
from dpatlas.data.sets.digits import DIGITS
from dpatlas.errors import InputError

THREE_EIGHT = {"classes": [3, 8], "n_train": 300, "norm": 8}


def digits(options, folder):
    prepare("digits", options, folder)
    return load(folder)


def test_digits_three_and_eight_are_357_records_of_the_same_bytes_every_time(tmp_path):
    found, _ = (digits(THREE_EIGHT, tmp_path / folder) for folder in ("one", "two"))
    assert found.x_train.shape == (300, 64) and found.x_add.shape == (57, 64)
    labels = np.concatenate([found.y_train, found.y_add])
    assert np.bincount(labels).tolist() == [183, 174]
    assert found.manifest["classes"] == ["3", "8"]
    for name in ("arrays.npz", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_every_record_is_normalised_by_itself(tmp_path):
    found = digits(THREE_EIGHT, tmp_path / "all")
    for x in (found.x_train, found.x_add):
        np.testing.assert_allclose(np.linalg.norm(x.astype(float), axis=1), 8, rtol=1e-6)
    fewer = digits(THREE_EIGHT | {"n_train": 10}, tmp_path / "few")
    np.testing.assert_array_equal(fewer.x_train, found.x_train[:10])


def test_record_without_direction_is_refused():
    with pytest.raises(InputError, match="zeros"):
        scale(np.zeros((1, 64), dtype=np.uint8), DIGITS.scaling, 8.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": []}, "an empty class selection"),
        ({"classes": [3, 3]}, "two or more"),
        ({"classes": [3, "x"]}, "0, 1, 2"),
        ({"classes": "38"}, "two or more"),
        ({"n_train": 358}, "at most 357"),
        ({"n_train": "300"}, "a whole number"),
        ({"n_train": 357}, "n_add"),
        ({"norm": float("nan")}, "norm"),
        ({"selection": -1}, "selection"),
        ({"normm": 8}, "normm"),
    ],
)
def test_bad_options_are_refused_in_one_line(tmp_path, change, message):
    with pytest.raises(InputError) as caught:
        prepare("digits", THREE_EIGHT | change, tmp_path / "out")
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


OPTIONS = json.dumps({"name": "digits", **THREE_EIGHT})


@pytest.mark.parametrize("options", ["{", "[]", "{}", '{"name": ["digits"], "classes": [3, 8]}'])
def test_command_refuses_bad_json_and_unknown_sets_with_exit_code_2(tmp_path, refusal_of, options):
    refusal_of(main, "--options", options, "--output", tmp_path)


def test_full_disk_is_one_line_and_leaves_nothing(tmp_path, result_of, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, error = result_of(main, "--options", OPTIONS, "--output", tmp_path / "out")
    assert code == 1 and "No space left" in error and error.count("\n") == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_photographs_lie_in_the_unit_cube_and_their_norms_do_not_overflow():
    levels = np.arange(256, dtype=np.uint8).reshape(1, -1)
    x = scale(levels, CIFAR10.scaling, None)
    np.testing.assert_allclose(x[0], np.arange(256) / 127.5 - 1, atol=1e-7)
    assert x.dtype == np.float32 and np.abs(x).max() == 1
    levels = np.full((2, 3072), 255, dtype=np.uint8)
    x = scale(levels, CIFAR10.scaling, 2.5)
    np.testing.assert_allclose(np.linalg.norm(x.astype(float), axis=1), 2.5, rtol=1e-6)
