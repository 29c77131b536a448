import warnings
import zipfile

import numpy as np
import pytest
from miniatures import CLASSES, Hostile, Xrays, jpeg_bytes, npy_bytes, prepared, refusal
from PIL import Image, JpegImagePlugin

from dpatlas.data.registry import find
from dpatlas.data.sets import pneumonia as module
from dpatlas.errors import InputError

FORMS = ("write_archive", "write_npz")
ONE_NAME = "chest_xray/train/PNEUMONIA/person4_bacteria_5.jpeg"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("damage", ["truncated", "html", "empty"])
def test_file_that_is_no_whole_archive_is_refused(xrays, tmp_path, form, damage):
    path = getattr(xrays, form)(tmp_path)
    whole = path.read_bytes()
    content = {"truncated": whole[:-100], "html": b"<html>not found</html>", "empty": b""}
    path.write_bytes(content[damage])
    message = refusal("pneumonia", tmp_path)
    assert path.name in message and "truncated or damaged archive" in message


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"])
def test_damaged_bytes_give_one_line_or_the_same_images(xrays, tmp_path, form, place):
    path = getattr(xrays, form)(tmp_path)
    whole = path.read_bytes()
    entry = find("pneumonia")
    source = module.locate(entry, [tmp_path])

    def images():
        rows = module.read(source, entry, CLASSES["pneumonia"]).splits["train"][0]
        return {row.tobytes() for row in rows}

    expected = images()
    start, refused = whole.rfind(place), 0
    for offset in range(0, 46):
        damaged = bytearray(whole)
        damaged[min(start + offset, len(whole) - 1)] ^= 0xFF
        path.write_bytes(damaged)
        try:
            found = images()
        except InputError as error:
            assert path.name in str(error) and "\n" not in str(error)
            refused += 1
        else:
            # A name that is no longer expected leaves its image out, which prepare would count.
            assert found <= expected
    assert refused


@pytest.mark.parametrize(
    ("shape", "found"), [((27, 40), "40 x 27 pixels"), ((40, 27, 3), "27 x 40 pixels")]
)
def test_image_that_does_not_fit_is_named(xrays, tmp_path, shape, found):
    content = jpeg_bytes(np.zeros(shape, np.uint8))
    xrays.write_archive(tmp_path, xrays.images() | {ONE_NAME: content})
    message = refusal("pneumonia", tmp_path)
    assert ONE_NAME in message and found in message


@pytest.mark.parametrize("side", [4097, 65_000])
def test_image_bomb_is_refused_by_its_header(xrays, tmp_path, side, monkeypatch):
    header = bytearray(jpeg_bytes(np.zeros((40, 40), np.uint8)))
    start = header.index(b"\xff\xc0") + 5
    header[start : start + 4] = side.to_bytes(2, "big") * 2
    xrays.write_archive(tmp_path, xrays.images() | {ONE_NAME: bytes(header)})
    decoded, kind = [], JpegImagePlugin.JpegImageFile
    load_image = kind.load
    monkeypatch.setattr(kind, "load", lambda image: decoded.append(image.size) or load_image(image))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        message = refusal("pneumonia", tmp_path)
    assert ONE_NAME in message and (side, side) not in decoded
    assert f"{side} x {side} pixels" in message or "cannot be decoded" in message


@pytest.mark.parametrize("form", FORMS)
def test_member_that_swells_is_refused_before_it_is_read(xrays, tmp_path, form, monkeypatch):
    bomb = bytes(module.LARGEST_MEMBER + 1)
    if form == "write_archive":
        xrays.write_archive(tmp_path, xrays.images() | {ONE_NAME: bomb})
    else:
        xrays.write_npz(tmp_path, val_images=bomb)
    opened = zipfile.ZipFile.open

    def guarded(archive, member):
        return opened(archive, member) if member.file_size < 10_000 else pytest.fail("opened")

    monkeypatch.setattr(zipfile.ZipFile, "open", guarded)
    assert f"{len(bomb)} bytes" in refusal("pneumonia", tmp_path)


def test_unselected_classes_are_not_decoded(xrays, tmp_path):
    xrays.write_archive(tmp_path, xrays.images() | {ONE_NAME: b"no image"})
    found = prepared("pneumonia_causes", tmp_path, classes=["normal", "virus"])
    assert np.bincount(found.y_train).tolist() == [4, 3]


def test_names_that_leave_the_archive_and_links_are_ignored(xrays, tmp_path):
    names = [
        "../chest_xray/train/NORMAL/a.jpeg",
        "/chest_xray/train/NORMAL/a.jpeg",
        "chest_xray/train/NORMAL/../NORMAL/a.jpeg",
        "chest_xray/train/NORMAL/..\\a.jpeg",
        "chest_xray/train/NORMAL/a.jpeg.exe",
        "chest_xray/train/NORMAL/a.jpeg\n",
        "chest_xray/val/NORMAL/a.jpeg",
    ]
    xrays.write_archive(tmp_path, extras=[(name, b"no image") for name in names])
    assert len(prepared("pneumonia", tmp_path).y_train) == sum(Xrays.PER_CLASS["train"])
    link = zipfile.ZipInfo("chest_xray/train/NORMAL/NORMAL2-IM-0000-0001.jpeg")
    link.external_attr = 0o120777 << 16
    images = xrays.images()
    del images[link.filename]
    xrays.write_archive(tmp_path, images, extras=[(link, b"/etc/hostname")])
    assert "cannot be decoded" in refusal("pneumonia", tmp_path, "linked")


def shape_of(**arrays):
    return lambda found: {name: change(found[name]) for name, change in arrays.items()}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (shape_of(test_images=lambda a: a[:, :27]), "(6, 27, 28)"),
        (shape_of(test_images=lambda a: a[:-1]), "(5, 28, 28)"),
        (shape_of(test_labels=lambda a: a[:, 0]), "uint8 (6,)"),
        (shape_of(test_labels=lambda a: a + np.uint8(1)), "labels below 2"),
        (shape_of(test_images=lambda a: npy_bytes(a)[:-5]), "test_images.npy: found a damaged"),
        (shape_of(val_labels=lambda a: None), "no val_labels.npy"),
    ],
)
def test_npz_with_other_arrays_is_refused(xrays, tmp_path, change, found):
    xrays.write_npz(tmp_path, **change(xrays.arrays()))
    message = refusal("pneumonia", tmp_path)
    assert "pneumoniamnist.npz" in message and found in message


def test_hostile_pickle_in_the_npz_runs_nothing(xrays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    xrays.write_npz(tmp_path, test_labels=npy_bytes(np.array([Hostile()], dtype=object)))
    assert "test_labels.npy" in refusal("pneumonia", tmp_path)
    assert not (tmp_path / "proof").exists()
