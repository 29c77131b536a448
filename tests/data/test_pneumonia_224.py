from dataclasses import replace

import numpy as np
import pytest
from pneumonia_miniature import PER_CAUSE, THREE, Miniature, jpeg_bytes, prepared, refusal

from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.pneumonia import PNEUMONIA_224, PNEUMONIA_CAUSES, _decode

NAME = "pneumonia-224"


@pytest.fixture
def xrays(monkeypatch) -> Miniature:
    monkeypatch.setitem(DATA_SETS, NAME, replace(PNEUMONIA_224, counts=PER_CAUSE))
    return Miniature(monkeypatch)


def test_only_the_resolution_differs_from_the_three_classes_at_28_pixels():
    changed = {"name": NAME, "what": PNEUMONIA_224.what, "image_shape": (1, 224, 224)}
    assert replace(PNEUMONIA_CAUSES, **changed) == PNEUMONIA_224


def test_the_archive_gives_large_images_of_the_three_classes(xrays, tmp_path):
    (tmp_path / "pneumonia").mkdir()
    xrays.write_archive(tmp_path / "pneumonia")
    found = prepared(tmp_path, tmp_path / "out", THREE, NAME)
    assert found.image_shape == (1, 224, 224) and found.x_train.shape == (11, 224 * 224)
    assert np.bincount(found.y_train).tolist() == list(PER_CAUSE["train"])
    # Images of one grey level stay so, whether enlarged or not.
    assert (np.ptp(np.rint(255 * found.x_train), axis=1) <= 1).all()


def test_the_small_version_in_one_file_is_not_enough(xrays, tmp_path):
    xrays.write_npz(tmp_path)
    message = refusal(tmp_path, tmp_path / "out", THREE, NAME)
    assert "ChestXRay2017.zip" in message and "pneumoniamnist" not in message


@pytest.mark.parametrize(("width", "height"), [(400, 130), (130, 400), (500, 448)])
def test_images_smaller_than_224_pixels_are_enlarged_and_larger_ones_reduced(width, height):
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    ramp = np.linspace(20, 230, side)
    pixels = np.zeros((height, width), np.uint8)
    pixels[top : top + side, left : left + side] = ramp[:, None]
    image = _decode("here", jpeg_bytes(pixels), PNEUMONIA_224).reshape(224, 224).astype(int)
    # The same slope over 224 rows, whatever the number of rows was.
    middle = (np.arange(224) + 0.5) * side / 224 - 0.5
    expected = np.interp(middle, np.arange(side), ramp)
    assert np.abs(image - expected[:, None]).mean() < 1.5
