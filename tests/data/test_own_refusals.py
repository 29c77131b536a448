"""Every way in which a user's images can be wrong: one line with the place, and nothing written."""

import io
import os
import shutil
import struct
import zipfile
import zlib

import numpy as np
import pytest
from own_miniature import CLASSES, GREY, NAME, levels, pile, put
from PIL import Image

from dpatlas.data.prepare import prepare
from dpatlas.errors import InputError


def refused(path, definition=GREY, **options) -> str:
    """What the command says of a set that cannot be prepared; nothing may be left behind."""
    chosen = {"classes": CLASSES, "n_train": 2, **options, "own": definition}
    out = path.parent / "refused"
    with pytest.raises(InputError) as caught:
        prepare(NAME, chosen, out, own_path=str(path))
    assert "\n" not in str(caught.value)
    assert not out.exists()
    return str(caught.value)


@pytest.fixture
def scans(tmp_path):
    pile(tmp_path / "scans", 3)
    return tmp_path / "scans"


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_of(width: int, height: int, bits: int = 8, kind: int = 0) -> bytes:
    """A PNG file that states a size and holds no pixel."""
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def put_one(path, shape=(6, 5)):
    put(path, levels(1, shape)[0])


def pages(path):
    images = [Image.fromarray(each) for each in levels(2, (6, 5))]
    images[0].save(path, save_all=True, append_images=images[1:])


def overwritten(path):
    content = path.read_bytes()
    path.write_bytes(content[:50] + bytes(20) + content[70:])


DEEP, ONE = np.full((6, 5), 700, np.uint16), "healthy/001.png"


@pytest.mark.parametrize(
    ("place", "write", "words"),
    [
        ("ill/odd.png", lambda path: put_one(path, (6, 6)), ["6 x 6", "resize: true"]),
        ("ill/deep.png", lambda path: put(path, DEEP), ["grey or colour of 8 bits"]),
        ("ill/deep.png", lambda path: path.write_bytes(png_of(5, 6, 16, 2)), ["of kind RGB;16"]),
        ("ill/deep.png", lambda path: path.write_bytes(png_of(5, 6, 16, 4)), ["of kind LA;16"]),
        ("ill/clear.png", lambda path: put_one(path, (6, 5, 4)), ["transparent"]),
        ("ill/pages.tif", pages, ["2 images in one file"]),
        ("ill/notes.txt", lambda path: path.write_text("x"), ["ill/notes.txt", ".png, .jpg"]),
        ("ill/pipe.png", os.mkfifo, ["ill/pipe.png"]),
        ("healthy/inner/a.png", put_one, ["healthy/inner", "a sub-folder of a class"]),
        ("unsure/a.png", put_one, ["unsure", "an unknown sub-folder", "healthy, ill"]),
        ("test/ill/a.png", put_one, ["healthy", "an unknown sub-folder", "train and test"]),
        (ONE, lambda path: path.write_bytes(path.read_bytes()[:60]), [ONE, "cannot be decoded"]),
        (ONE, overwritten, [ONE, "cannot be decoded"]),
    ],
)
def test_what_is_no_image_of_this_set_is_named(scans, place, write, words):
    write(scans / place)
    found = refused(scans)
    assert all(word in found for word in words)


@pytest.mark.parametrize(
    ("side", "resize", "words"),
    [
        (3000, False, "5 x 5 pixels, or resize: true"),
        (9000, True, "67108864 pixels at most"),
        (30000, True, "cannot be decoded"),
    ],
)
def test_an_image_of_an_absurd_size_is_refused_by_its_header(tmp_path, side, resize, words):
    pile(tmp_path / "scans", 1, (5, 5))
    (tmp_path / "scans/ill/bomb.png").write_bytes(png_of(side, side))
    found = refused(tmp_path / "scans", {**GREY, "image_shape": [1, 5, 5], "resize": resize})
    assert "ill/bomb.png" in found and words in found


def test_a_class_without_a_folder_or_without_images_is_named(scans):
    for file in (scans / "ill").iterdir():
        file.unlink()
    assert "no train images of class ill" in refused(scans)
    (scans / "ill").rmdir()
    assert "no sub-folder ill" in refused(scans)


@pytest.mark.parametrize("what", ["file", "folder", "broken"])
def test_a_link_that_leads_out_of_the_folder_is_refused(scans, what):
    elsewhere = scans.parent / "elsewhere"
    put_one(elsewhere / "a.png")
    if what == "folder":
        shutil.rmtree(scans / "ill")
        (scans / "ill").symlink_to(elsewhere)
    else:
        target = elsewhere / ("a.png" if what == "file" else "none.png")
        (scans / "ill/link.png").symlink_to(target)
    assert "leads out of the folder" in refused(scans)


def test_a_link_to_itself_is_no_image(scans):
    (scans / "ill/link.png").symlink_to("link.png")
    assert "ill/link.png: found a file that is no image" in refused(scans)


@pytest.mark.parametrize("name", ["nowhere", "file.zip"])
def test_a_path_with_nothing_to_read_is_named(tmp_path, name):
    (tmp_path / "file.zip").touch()
    found = refused(tmp_path / name)
    assert "data.own.my-scans.path" in found and name in found


def npz(path, **arrays):
    given = {"x_train": levels(4, (6, 5)), "y_train": np.array([0, 1, 0, 1]), **arrays}
    np.savez(path, **{name: array for name, array in given.items() if array is not None})
    return path


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x_train": np.zeros((4, 6, 5))}, ["x_train", "float64", "255 * x", "uint8"]),
        ({"x_train": levels(4, (5, 6))}, ["x_train", "4 x 5 x 6", "n x 1 x 6 x 5"]),
        ({"x_train": levels(3, (6, 5))}, ["y_train", "3 whole numbers from 0 to 1"]),
        ({"y_train": np.array([0, 1, 0, 2])}, ["y_train", "labels from 0 to 2"]),
        ({"y_train": np.eye(4, 2, dtype=int)}, ["y_train", "(4, 2)"]),
        ({"y_train": np.zeros(4, int)}, ["no train images of class ill"]),
        ({"y_train": None}, ["arrays x_train", "x_train and y_train"]),
        ({"x_test": levels(4, (6, 5))}, ["x_test", "x_train and y_train"]),
        ({"x_train": np.array([{}] * 4, dtype=object)}, ["arrays of objects"]),
    ],
)
def test_wrong_arrays_are_one_line(tmp_path, arrays, words):
    found = refused(npz(tmp_path / "a.npz", **arrays))
    assert "a.npz" in found
    assert all(word in found for word in words)


def test_a_header_that_states_more_than_there_is_allocates_nothing(tmp_path):
    def member(shape) -> bytes:
        stream = io.BytesIO()
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        return stream.getvalue() + bytes(30)

    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x_train.npy", member((1 << 50, 6, 5)))
        archive.writestr("y_train.npy", member((30,)))
    assert "a damaged file" in refused(tmp_path / "a.npz")


def test_an_array_of_an_absurd_size_and_a_damaged_file_are_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("dpatlas.data.own.LARGEST_ARRAY", 200)
    path = npz(tmp_path / "a.npz")
    assert "200 bytes at most" in refused(path)
    path.write_bytes(path.read_bytes()[:200])
    assert "a damaged file" in refused(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": ["healthy"]}, ["classes", "two or more different"]),
        ({"classes": ["healthy", "../ill"]}, ["classes", "'../ill'"]),
        ({"image_shape": [3, 4096, 4096]}, ["image_shape", "numbers at most"]),
        ({"resize": True}, ["image_shape", "a square"]),
        ({"pth": "x"}, ["pth", "does not exist"]),
    ],
)
def test_a_definition_that_cannot_be_is_one_line(scans, change, words):
    found = refused(scans, {**GREY, **change})
    assert "data.own.my-scans" in found
    assert all(word in found for word in words)
