"""The chest X-rays as the unpacked archive."""

import os

import numpy as np
import pytest
from pneumonia_miniature import PER_CLASS, prepared, refusal

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


def test_the_archive_is_preferred_and_the_folder_to_the_small_version(xrays, tmp_path):
    xrays.write_npz(tmp_path)
    xrays.write_unpacked(tmp_path)
    kinds = [prepared(tmp_path, tmp_path / "one").manifest["source"]["kind"]]
    xrays.write_archive(tmp_path)
    kinds.append(prepared(tmp_path, tmp_path / "two").manifest["source"]["kind"])
    assert kinds == ["official archive, unpacked", "official archive"]


@pytest.mark.parametrize("place", range(4))
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
