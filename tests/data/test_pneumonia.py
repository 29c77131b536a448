import io
import os

import numpy as np
import pytest
from miniatures import Xrays, jpeg_bytes, prepared, refusal
from PIL import Image

from dpatlas.data.registry import find
from dpatlas.data.sets import pneumonia as module

FORMS = ("write_archive", "write_npz")
FOLDERS = ("train/NORMAL", "train/PNEUMONIA", "test/NORMAL", "test/PNEUMONIA")
ONE_NAME = "chest_xray/train/PNEUMONIA/person4_bacteria_5.jpeg"


@pytest.mark.parametrize("form", FORMS)
def test_both_formats_give_the_images_and_labels(xrays, tmp_path, form):
    getattr(xrays, form)(tmp_path)
    found = prepared("pneumonia", tmp_path)
    assert found.image_shape == (1, 28, 28)
    for split, part in (("train", "train"), ("test", "add")):
        x, y = 255 * getattr(found, f"x_{part}"), getattr(found, f"y_{part}")
        assert np.bincount(y).tolist() == list(Xrays.PER_CLASS[split])
        np.testing.assert_array_equal(y, x[:, 0] > Xrays.LEVELS["bacteria"] - 1)
        # Images of one grey level stay so.
        assert (np.ptp(np.rint(x), axis=1) <= 1).all()
        gaps = np.sort(np.rint(x[:, 0])) - sorted(xrays.levels[split])
        assert np.abs(gaps).max() <= (2 if form == "write_archive" else 0)


@pytest.mark.parametrize(("name", "side"), [("pneumonia_causes", 28), ("pneumonia-224", 224)])
def test_causes_are_told_by_file_name_in_the_archive_alone(xrays, tmp_path, name, side):
    xrays.write_npz(tmp_path)
    message = refusal(name, tmp_path)
    assert "ChestXRay2017.zip" in message and "pneumoniamnist" not in message
    (tmp_path / "pneumonia").mkdir()
    xrays.write_archive(tmp_path / "pneumonia")
    found = prepared(name, tmp_path)
    assert found.image_shape == (1, side, side)
    assert np.bincount(found.y_train).tolist() == list(Xrays.PER_CAUSE["train"])
    assert np.bincount(found.y_add).tolist() == list(Xrays.PER_CAUSE["test"])
    bounds = np.array([*Xrays.LEVELS.values()][1:]) - 1
    np.testing.assert_array_equal(found.y_train, np.digitize(255 * found.x_train[:, 0], bounds))
    assert (np.ptp(np.rint(255 * found.x_train), axis=1) <= 1).all()


@pytest.mark.parametrize("form", FORMS)
def test_images_of_a_class_keep_the_order_of_the_source(xrays, tmp_path, form):
    getattr(xrays, form)(tmp_path)
    source = module.locate(find("pneumonia"), [tmp_path])
    pixels, labels = module.read(source, find("pneumonia"), ["pneumonia"]).splits["train"]
    assert pixels.dtype == np.uint8 and labels.tolist() == [0] * 7
    if form == "write_archive":
        expected = [
            int(np.asarray(Image.open(io.BytesIO(content)).convert("L"))[0, 0])
            for name, content in sorted(xrays.images().items())
            if name.startswith("chest_xray/train/PNEUMONIA")
        ]
    else:
        arrays = xrays.arrays()
        every = np.concatenate([arrays["train_images"], arrays["val_images"]])[:, 0, 0]
        expected = every[every >= Xrays.LEVELS["bacteria"]].tolist()
    assert pixels[:, 0].tolist() == expected


def test_archive_is_preferred_to_the_folder_and_that_to_the_small_version(
    xrays, tmp_path, monkeypatch
):
    def source():
        return prepared("pneumonia", tmp_path).manifest["source"]

    npz = xrays.write_npz(tmp_path)
    assert source()["kind"] == "PneumoniaMNIST, not the published file"
    monkeypatch.setattr(module, "NPZ_MD5", module.file_digest(npz, "md5"))
    assert source()["kind"] == "PneumoniaMNIST"
    xrays.write_unpacked(tmp_path)
    assert source()["kind"] == "official archive, unpacked"
    path = xrays.write_archive(tmp_path)
    checksum = f"sha256:{module.file_digest(path, 'sha256')}"
    expected = {"kind": "official archive", "file": "ChestXRay2017.zip", "checksum": checksum}
    assert source() == expected


@pytest.mark.parametrize("name", ["pneumonia", "pneumonia-224"])
@pytest.mark.parametrize(("width", "height"), [(401, 130), (130, 401), (500, 448)])
@pytest.mark.parametrize("turned", [False, True])
def test_image_is_cropped_to_its_centre_and_resized(name, width, height, turned):
    side, target = min(width, height), find(name).image_shape[1]
    left, top = (width - side) // 2, (height - side) // 2
    ramp = np.linspace(20, 230, side)
    square = np.broadcast_to(ramp[:, None], (side, side))
    pixels = np.zeros((height, width), np.uint8)
    pixels[top : top + side, left : left + side] = square.T if turned else square
    image = module._decode("here", jpeg_bytes(pixels), find(name)).reshape(target, target)
    # The same slope over all rows, whatever their number was; what lies outside is not seen.
    middle = (np.arange(target) + 0.5) * side / target - 0.5
    expected = np.interp(middle, np.arange(side), ramp)
    assert np.abs((image.T if turned else image) - expected[:, None]).mean() < 1.5


def test_checksum_covers_names_and_contents_of_what_is_read(xrays, tmp_path):
    def checksum():
        return prepared("pneumonia", tmp_path).manifest["source"]["checksum"]

    folder = xrays.write_unpacked(tmp_path)
    found = [checksum()]
    (folder / "test/NORMAL/.DS_Store").write_bytes(b"another leftover")
    assert checksum() == found[0]
    path = tmp_path / ONE_NAME
    path.write_bytes(path.read_bytes() + b"\0")
    found.append(checksum())
    path.rename(path.with_name("person4_bacteria_6.jpeg"))
    found.append(checksum())
    assert len(set(found)) == 3


@pytest.mark.parametrize("place", [0, 3])
def test_missing_folders_are_named(xrays, tmp_path, place):
    xrays.write_unpacked(tmp_path)
    missing = FOLDERS[place:]
    for name in missing:
        (tmp_path / "chest_xray" / name).rename(tmp_path / name.replace("/", "-"))
    message = refusal("pneumonia", tmp_path)
    assert f"chest_xray: found no {', '.join(missing)}; allowed: all four" in message


def test_only_images_by_their_names_are_opened(xrays, tmp_path):
    folder = xrays.write_unpacked(tmp_path) / "train/NORMAL"
    os.mkfifo(folder / "._a.jpeg")
    for name in ("a.png", ".a.jpeg", "a b.jpeg", "a.jpeg.exe"):
        (folder / name).write_bytes(b"no image")
    (folder / "deeper").mkdir()
    found = prepared("pneumonia", tmp_path)
    assert np.bincount(found.y_train).tolist() == list(Xrays.PER_CLASS["train"])


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large", "loop", "none"])
def test_an_image_that_is_no_file_of_its_size_is_refused(xrays, tmp_path, kind):
    xrays.write_unpacked(tmp_path)
    path = tmp_path / ONE_NAME
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        with path.open("wb") as stream:
            stream.truncate(1 << 40)
    elif kind != "none":
        path.symlink_to("/dev/zero" if kind == "device" else path)
    message = refusal("pneumonia", tmp_path)
    found = {
        "large": f"{ONE_NAME}: found more than 16777216 bytes",
        "folder": f"{ONE_NAME}: found a folder",
        "none": "found 6 train images of class pneumonia; allowed: 7 of them",
    }
    assert found.get(kind, f"{ONE_NAME}: found a special file") in message
