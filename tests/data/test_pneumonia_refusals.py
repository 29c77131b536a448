import warnings
import zipfile

import numpy as np
import pytest
from miniatures import CLASSES, Hostile, jpeg_bytes, npy_bytes, refusal
from PIL import Image, JpegImagePlugin

from dpatlas.data.registry import find
from dpatlas.data.sets import pneumonia as module
from dpatlas.errors import InputError

FORMS = ("write_archive", "write_npz")
ONE_NAME = "chest_xray/train/PNEUMONIA/person4_bacteria_5.jpeg"


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


def test_hostile_pickle_in_the_npz_runs_nothing(xrays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    xrays.write_npz(tmp_path, test_labels=npy_bytes(np.array([Hostile()], dtype=object)))
    assert "test_labels.npy" in refusal("pneumonia", tmp_path)
    assert not (tmp_path / "proof").exists()
