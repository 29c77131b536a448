from dataclasses import asdict

import numpy as np
import pytest
from copies import prepared, refusal
from stl10_miniature import Miniature

from dpatlas.data.sets.cifar10 import CIFAR10
from dpatlas.data.sets.stl10 import STL10, STL10_32
from dpatlas.models.imagenet import PREPROCESSING

TWO = {"classes": ["monkey", "airplane"]}
CODES = (7, 0)


@pytest.fixture
def photographs(monkeypatch) -> Miniature:
    return Miniature(monkeypatch)


def levels(x, scaling) -> np.ndarray:
    return np.rint((x * scaling.divide + scaling.subtract) / scaling.multiply).astype(np.uint8)


def parts(found):
    return ("train", found.x_train, found.y_train), ("test", found.x_add, found.y_add)


def test_ten_classes_hold_500_training_and_800_test_images_each():
    names = "airplane bird car cat deer dog horse monkey ship truck"
    for entry in (STL10, STL10_32):
        # The order of class_names.txt, whose lines the labels 1 to 10 count.
        assert entry.classes == tuple(names.split())
        assert entry.counts == {"train": (500,) * 10, "test": (800,) * 10}


def test_checksums_are_those_that_torchvision_expects():
    from torchvision.datasets import STL10 as Published

    md5 = dict(Published.train_list[:2] + Published.test_list)
    assert STL10.unpacked_md5 == md5 and STL10.files[0].md5 == Published.tgz_md5
    assert STL10.files[0].address == Published.url


def test_each_size_is_scaled_as_the_backbones_take_it():
    assert {**asdict(STL10.scaling), "norm": None} == PREPROCESSING
    assert (STL10_32.scaling, STL10_32.image_shape) == (CIFAR10.scaling, CIFAR10.image_shape)


def test_bytes_of_a_channel_run_down_its_columns(photographs, tmp_path):
    content = bytearray(photographs.raw()["train_X.bin"])
    labels = photographs.splits["train"][1]
    channel, row, column = 2, 5, 90
    for start in 27648 * np.flatnonzero(labels == 0):
        image = bytearray(27648)
        image[channel * 96**2 + column * 96 + row] = 255
        content[start : start + 27648] = image
    photographs.write_archive(tmp_path, train_X=bytes(content))
    found = prepared("stl10", tmp_path, tmp_path / "out", TWO)
    for record in found.x_train[found.y_train == 1]:
        assert np.argwhere(record.reshape(3, 96, 96)).tolist() == [[channel, row, column]]


@pytest.mark.parametrize("folder", ["", "stl10", "stl10-32"])
def test_the_small_images_are_means_of_three_by_three_pixels(photographs, tmp_path, folder):
    (tmp_path / "root" / folder).mkdir(parents=True)
    photographs.write_archive(tmp_path / "root" / folder)
    found = prepared("stl10-32", tmp_path / "root", tmp_path / "out", TWO)
    assert found.manifest["image_shape"] == [3, 32, 32]
    for split, x, y in parts(found):
        images, labels = photographs.splits[split]
        corners = [(row, column) for row in range(3) for column in range(3)]
        means = np.mean([images[:, :, r::3, c::3] for r, c in corners], axis=0)
        for label, code in enumerate(CODES):
            pixels = levels(x[y == label], STL10_32.scaling)
            expected = np.floor(means[labels == code] + 0.5).astype(np.uint8)
            assert sorted(map(bytes, pixels)) == sorted(map(bytes, expected))


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"train_X": bytes(29 * 27648)}, "train_X.bin: found 801792 bytes"),
        ({"train_y": bytes([0, 10] * 15)}, "train_y.bin: found labels from 0 to 10"),
        ({"test_y": bytes([1, 11] * 10)}, "test_y.bin: found labels from 1 to 11"),
        ({"train_y": bytes([8, 8] * 15)}, "found 30 train images of class monkey; allowed: 3"),
        ({"train_y": b"", "train_X": b""}, "found 0 train images of class monkey"),
    ],
)
def test_labels_and_images_that_do_not_fit_are_one_line(photographs, tmp_path, replaced, words):
    photographs.write_archive(tmp_path, **replaced)
    assert words in refusal("stl10", tmp_path, tmp_path / "out", TWO)
