import io
import os
from dataclasses import replace

import numpy as np
import pytest
from local_server import fail
from PIL import Image
from pneumonia_miniature import (
    FORMS,
    LEVELS,
    PER_CAUSE,
    PER_CLASS,
    THREE,
    TWO,
    jpeg_bytes,
    prepared,
    refusal,
)

from dpatlas.data.download import download
from dpatlas.data.prepare import prepare
from dpatlas.data.registry import DATA_SETS, find
from dpatlas.data.sets import pneumonia as module
from dpatlas.data.sets.pneumonia import PNEUMONIA, PNEUMONIA_224, PNEUMONIA_CAUSES
from dpatlas.errors import InputError


def levels(x) -> list[int]:
    """The grey level of every record of flat images, in order of size."""
    whole = np.rint(255 * x)
    assert (np.ptp(whole, axis=1) <= 1).all()
    return sorted(whole[:, 0].astype(int).tolist())


def test_counts_are_the_published_ones():
    for entry in (PNEUMONIA, PNEUMONIA_CAUSES):
        sums = {split: sum(counts) for split, counts in entry.counts.items()}
        assert sums == {"train": 5232, "test": 624}
    for split, (normal, pneumonia) in PNEUMONIA.counts.items():
        assert PNEUMONIA_CAUSES.counts[split][0] == normal
        assert sum(PNEUMONIA_CAUSES.counts[split][1:]) == pneumonia


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("folder", ["", "pneumonia"])
def test_both_formats_give_the_images_and_labels(xrays, tmp_path, form, folder):
    (tmp_path / "root" / folder).mkdir(parents=True)
    getattr(xrays, form)(tmp_path / "root" / folder)
    found = prepared(tmp_path / "root", tmp_path / "out")
    assert found.manifest["image_shape"] == [1, 28, 28]
    for split, x, y in (
        ("train", found.x_train, found.y_train),
        ("test", found.x_add, found.y_add),
    ):
        assert np.bincount(y).tolist() == list(PER_CLASS[split])
        np.testing.assert_array_equal(y, x[:, 0] > (LEVELS["bacteria"] - 1) / 255)
        gaps = np.subtract(levels(x), sorted(xrays.levels[split]))
        assert np.abs(gaps).max() <= (2 if form == "write_archive" else 0)


def test_causes_are_told_by_file_name(xrays, tmp_path):
    xrays.write_archive(tmp_path)
    found = prepared(tmp_path, tmp_path / "out", THREE, "pneumonia_causes")
    assert np.bincount(found.y_train).tolist() == list(PER_CAUSE["train"])
    assert np.bincount(found.y_add).tolist() == list(PER_CAUSE["test"])
    bounds = np.array([*LEVELS.values()][1:]) - 1
    np.testing.assert_array_equal(found.y_train, np.digitize(255 * found.x_train[:, 0], bounds))


@pytest.mark.parametrize("name", ["pneumonia_causes", "pneumonia-224"])
def test_causes_need_the_archive(xrays, tmp_path, name):
    xrays.write_npz(tmp_path)
    message = refusal(tmp_path, tmp_path / "out", THREE, name)
    assert "ChestXRay2017.zip" in message and "pneumoniamnist" not in message


def test_archive_without_causes_in_its_names_is_refused(xrays, tmp_path):
    images = {name.replace("VIRUS", "UNKNOWN"): content for name, content in xrays.images().items()}
    xrays.write_archive(tmp_path, images)
    message = refusal(tmp_path, tmp_path / "out", THREE, "pneumonia_causes")
    assert "0 train images of class virus" in message and "3 of them" in message


@pytest.mark.parametrize("form", FORMS)
def test_images_of_a_class_keep_the_order_of_the_source(xrays, tmp_path, form):
    getattr(xrays, form)(tmp_path)
    source = module.locate(find("pneumonia"), [tmp_path])
    pixels, labels = module.read(source, find("pneumonia"), ["pneumonia"]).splits["train"]
    assert pixels.dtype == np.uint8 and labels.tolist() == [0] * 7
    if form == "write_archive":
        images = sorted(xrays.images().items())
        expected = [
            int(np.asarray(Image.open(io.BytesIO(content)).convert("L"))[0, 0])
            for name, content in images
            if name.startswith("chest_xray/train/PNEUMONIA")
        ]
    else:
        arrays = xrays.arrays()
        every = np.concatenate([arrays["train_images"], arrays["val_images"]])[:, 0, 0]
        expected = every[every >= LEVELS["bacteria"]].tolist()
    assert pixels[:, 0].tolist() == expected


def test_archive_is_preferred_to_the_folder_and_that_to_the_small_version(xrays, tmp_path):
    xrays.write_npz(tmp_path)
    xrays.write_unpacked(tmp_path)
    source = prepared(tmp_path, tmp_path / "folder").manifest["source"]
    assert source["kind"] == "official archive, unpacked"
    path = xrays.write_archive(tmp_path)
    source = prepared(tmp_path, tmp_path / "out").manifest["source"]
    assert source["kind"] == "official archive" and source["file"] == "ChestXRay2017.zip"
    assert source["checksum"] == f"sha256:{module.file_digest(path, 'sha256')}"


def test_record_says_whether_the_npz_is_the_published_file(xrays, tmp_path, monkeypatch):
    path = xrays.write_npz(tmp_path)
    other = prepared(tmp_path, tmp_path / "other").manifest["source"]
    assert other["kind"] == "PneumoniaMNIST, not the published file"
    monkeypatch.setattr(module, "NPZ_MD5", module.file_digest(path, "md5"))
    assert prepared(tmp_path, tmp_path / "out").manifest["source"]["kind"] == "PneumoniaMNIST"


@pytest.mark.parametrize(("width", "height"), [(90, 33), (33, 90), (56, 56)])
def test_image_is_cropped_to_its_centre_and_resized(xrays, tmp_path, width, height):
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    pixels = np.full((height, width), 255, np.uint8)
    pixels[top : top + side, left : left + side // 2] = 100
    pixels[top : top + side, left + side // 2 : left + side] = 20
    image = module._decode("here", jpeg_bytes(pixels), PNEUMONIA).reshape(28, 28).astype(int)
    # Away from its edges the square is two flat halves; what lies outside is not seen at all.
    assert np.abs(image[2:-2, 2:11] - 100).max() <= 8
    assert np.abs(image[2:-2, 17:-2] - 20).max() <= 8
    if width == height:
        reference = pixels.reshape(28, 2, 28, 2).mean(axis=(1, 3))
        assert np.abs(image - reference).mean() < 3


def test_nothing_is_fetched_and_the_message_says_what_to_do(xrays, server, tmp_path):
    server.answers = [fail(404)]
    with pytest.raises(InputError) as caught:
        prepare(
            "pneumonia",
            TWO,
            tmp_path / "out",
            data_root=tmp_path,
            download_folder=tmp_path / "cache",
            allow_download=True,
            mirrors=[server.address],
        )
    with pytest.raises(InputError, match="one with files to download"):
        download("pneumonia", tmp_path / "cache", mirrors=[server.address])
    assert server.paths == []
    message = str(caught.value)
    for part in ("data.root", str(tmp_path), "ChestXRay2017.zip", "pneumoniamnist.npz"):
        assert part in message
    assert "rscbjbr9sj version 2" in message and "no checksum is published" in message
    assert "permission" not in message and "official: )" not in message


@pytest.fixture
def xrays_224(xrays, monkeypatch):
    entry = replace(PNEUMONIA_224, counts=PER_CAUSE)
    monkeypatch.setitem(DATA_SETS, entry.name, entry)
    return xrays


def test_only_the_resolution_differs_from_the_three_classes_at_28_pixels():
    changed = {"name": "pneumonia-224", "what": PNEUMONIA_224.what, "image_shape": (1, 224, 224)}
    assert replace(PNEUMONIA_CAUSES, **changed) == PNEUMONIA_224


def test_the_archive_gives_large_images_of_the_three_classes(xrays_224, tmp_path):
    (tmp_path / "pneumonia").mkdir()
    xrays_224.write_archive(tmp_path / "pneumonia")
    found = prepared(tmp_path, tmp_path / "out", THREE, "pneumonia-224")
    assert found.image_shape == (1, 224, 224) and found.x_train.shape == (11, 224 * 224)
    assert np.bincount(found.y_train).tolist() == list(PER_CAUSE["train"])
    # Images of one grey level stay so, whether enlarged or not.
    assert (np.ptp(np.rint(255 * found.x_train), axis=1) <= 1).all()


@pytest.mark.parametrize(("width", "height"), [(400, 130), (130, 400), (500, 448)])
def test_images_smaller_than_224_pixels_are_enlarged_and_larger_ones_reduced(width, height):
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    ramp = np.linspace(20, 230, side)
    pixels = np.zeros((height, width), np.uint8)
    pixels[top : top + side, left : left + side] = ramp[:, None]
    image = module._decode("here", jpeg_bytes(pixels), PNEUMONIA_224).reshape(224, 224).astype(int)
    # The same slope over 224 rows, whatever the number of rows was.
    middle = (np.arange(224) + 0.5) * side / 224 - 0.5
    expected = np.interp(middle, np.arange(side), ramp)
    assert np.abs(image - expected[:, None]).mean() < 1.5


FOLDERS = ("train/NORMAL", "train/PNEUMONIA", "test/NORMAL", "test/PNEUMONIA")
ONE_NAME = "chest_xray/train/PNEUMONIA/person4_bacteria_5.jpeg"


def test_checksum_covers_names_and_contents_of_what_is_read(xrays, tmp_path):
    def checksum(place):
        return prepared(tmp_path, tmp_path / place).manifest["source"]["checksum"]

    folder = xrays.write_unpacked(tmp_path)
    found = [checksum("one")]
    (folder / "test/NORMAL/.DS_Store").write_bytes(b"another leftover")
    assert checksum("two") == found[0]
    path = tmp_path / ONE_NAME
    path.write_bytes(path.read_bytes() + b"\0")
    found.append(checksum("three"))
    path.rename(path.with_name("person4_bacteria_6.jpeg"))
    found.append(checksum("four"))
    assert len(set(found)) == 3


@pytest.mark.parametrize("place", [0, 3])
def test_missing_folders_are_named(xrays, tmp_path, place):
    xrays.write_unpacked(tmp_path)
    missing = FOLDERS[place:]
    for name in missing:
        (tmp_path / "chest_xray" / name).rename(tmp_path / name.replace("/", "-"))
    message = refusal(tmp_path, tmp_path / "out")
    assert f"chest_xray: found no {', '.join(missing)}; allowed: all four" in message


def test_a_folder_that_is_unpacked_in_part_is_refused_by_split_and_class(xrays, tmp_path):
    xrays.write_unpacked(tmp_path)
    (tmp_path / ONE_NAME).unlink()
    message = refusal(tmp_path, tmp_path / "out")
    assert "chest_xray: found 6 train images of class pneumonia; allowed: 7 of them" in message


def test_only_images_by_their_names_are_opened(xrays, tmp_path):
    folder = xrays.write_unpacked(tmp_path) / "train/NORMAL"
    os.mkfifo(folder / "._a.jpeg")
    for name in ("a.png", ".a.jpeg", "a b.jpeg", "a.jpeg.exe"):
        (folder / name).write_bytes(b"no image")
    (folder / "deeper").mkdir()
    found = prepared(tmp_path, tmp_path / "out")
    assert np.bincount(found.y_train).tolist() == list(PER_CLASS["train"])


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large", "loop"])
def test_an_image_that_is_no_file_of_its_size_is_refused(xrays, tmp_path, kind, monkeypatch):
    xrays.write_unpacked(tmp_path)
    path = tmp_path / ONE_NAME
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        with path.open("wb") as stream:
            stream.truncate(1 << 40)
    message = refusal(tmp_path, tmp_path / "out")
    assert ONE_NAME in message
    found = {"large": "more than 16777216 bytes", "folder": "a folder"}
    assert found.get(kind, "a special file") in message
