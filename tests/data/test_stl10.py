import hashlib
from dataclasses import asdict, replace

import numpy as np
import pytest
from local_server import send
from stl10_miniature import PER_CLASS, Miniature

from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import load
from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.cifar10 import CIFAR10
from dpatlas.data.sets.stl10 import STL10, STL10_32
from dpatlas.errors import InputError
from dpatlas.models.imagenet import PREPROCESSING

FORMS = ("write_archive", "write_unpacked")
TWO = {"classes": ["monkey", "airplane"]}
CODES = (7, 0)


@pytest.fixture
def photographs(monkeypatch) -> Miniature:
    return Miniature(monkeypatch)


def prepared(root, out, name="stl10", options=TWO):
    # The default cache is relative to the working folder and must not be seen here.
    prepare(name, options, out, data_root=root, download_folder=out / "cache")
    return load(out)


def refusal(root, out, name="stl10") -> str:
    with pytest.raises(InputError) as caught:
        prepared(root, out, name)
    assert "\n" not in str(caught.value) and not (out / "arrays.npz").exists()
    return str(caught.value)


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("folder", ["", "stl10"])
def test_each_accepted_form_gives_the_images_row_by_row(photographs, tmp_path, form, folder):
    (tmp_path / "root" / folder).mkdir(parents=True)
    getattr(photographs, form)(tmp_path / "root" / folder)
    found = prepared(tmp_path / "root", tmp_path / "out")
    assert found.manifest["image_shape"] == [3, 96, 96]
    for split, x, y in parts(found):
        images, labels = photographs.splits[split]
        assert np.bincount(y).tolist() == [PER_CLASS[split]] * 2
        for label, code in enumerate(CODES):
            pixels = levels(x[y == label], STL10.scaling)
            assert sorted(map(bytes, pixels)) == sorted(map(bytes, images[labels == code]))


def test_bytes_of_a_channel_run_down_its_columns(photographs, tmp_path):
    content = bytearray(photographs.raw()["train_X.bin"])
    labels = photographs.splits["train"][1]
    channel, row, column = 2, 5, 90
    for start in 27648 * np.flatnonzero(labels == 0):
        image = bytearray(27648)
        image[channel * 96**2 + column * 96 + row] = 255
        content[start : start + 27648] = image
    photographs.write_archive(tmp_path, train_X=bytes(content))
    found = prepared(tmp_path, tmp_path / "out")
    for record in found.x_train[found.y_train == 1]:
        assert np.argwhere(record.reshape(3, 96, 96)).tolist() == [[channel, row, column]]


@pytest.mark.parametrize("folder", ["", "stl10", "stl10-32"])
def test_the_small_images_are_means_of_three_by_three_pixels(photographs, tmp_path, folder):
    (tmp_path / "root" / folder).mkdir(parents=True)
    photographs.write_archive(tmp_path / "root" / folder)
    found = prepared(tmp_path / "root", tmp_path / "out", "stl10-32")
    assert found.manifest["image_shape"] == [3, 32, 32]
    for split, x, y in parts(found):
        images, labels = photographs.splits[split]
        corners = [(row, column) for row in range(3) for column in range(3)]
        means = np.mean([images[:, :, r::3, c::3] for r, c in corners], axis=0)
        for label, code in enumerate(CODES):
            pixels = levels(x[y == label], STL10_32.scaling)
            expected = np.floor(means[labels == code] + 0.5).astype(np.uint8)
            assert sorted(map(bytes, pixels)) == sorted(map(bytes, expected))


def test_packed_and_unpacked_copies_have_the_same_content(photographs, tmp_path):
    found = []
    for form in FORMS:
        (tmp_path / form).mkdir()
        getattr(photographs, form)(tmp_path / form)
        found.append(prepared(tmp_path / form, tmp_path / f"out-{form}").sha256)
    assert found[0] == found[1]


@pytest.mark.parametrize("change", ["truncated", "corrupted"])
def test_an_archive_with_another_md5_is_never_opened(photographs, tmp_path, monkeypatch, change):
    path = photographs.write_archive(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content[:-100] if change == "truncated" else content)
    monkeypatch.setattr("tarfile.open", lambda *_: pytest.fail("opened"))
    message = refusal(tmp_path, tmp_path / "out")
    assert "stl10_binary.tar.gz: found md5" in message and "remove this one" in message


def test_an_archive_that_ends_early_is_called_damaged(photographs, tmp_path):
    content = photographs.archive_bytes()[:500_000]
    (tmp_path / "stl10_binary.tar.gz").write_bytes(content)
    photographs.register(archive=content)
    assert "a truncated or damaged archive" in refusal(tmp_path, tmp_path / "out")


def test_what_an_archive_lacks_is_named(photographs, tmp_path):
    photographs.write_archive(tmp_path, without=("train_X.bin", "test_y.bin"))
    assert "found no train_X.bin, test_y.bin" in refusal(tmp_path, tmp_path / "out")


def test_changed_and_missing_files_of_an_unpacked_copy_are_named(photographs, tmp_path):
    folder = photographs.write_unpacked(tmp_path)
    (folder / "test_y.bin").write_bytes(b"something else")
    assert "stl10_binary/test_y.bin: found md5" in refusal(tmp_path, tmp_path / "out")
    (folder / "test_y.bin").unlink()
    (folder / "train_X.bin").unlink()
    message = refusal(tmp_path, tmp_path / "out")
    assert "stl10_binary: found no train_X.bin, test_y.bin; allowed: all files" in message


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
    assert words in refusal(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("name", ["stl10", "stl10-32"])
def test_the_archive_is_fetched_where_that_is_allowed(
    photographs, server, tmp_path, monkeypatch, name
):
    content = photographs.archive_bytes()
    server.answers = [send(content)]
    photographs.register(archive=content)
    entry = DATA_SETS[name]
    address = f"{server.address}/~acoates/stl10/stl10_binary.tar.gz"
    file = replace(entry.files[0], address=address)
    monkeypatch.setitem(DATA_SETS, name, replace(entry, files=(file,)))
    cache = tmp_path / "cache"
    prepare(name, TWO, tmp_path / "out", allow_download=True, download_folder=cache)
    assert server.paths == ["/~acoates/stl10/stl10_binary.tar.gz"]
    kept = (cache / "stl10_binary.tar.gz").read_bytes()
    assert hashlib.md5(kept).hexdigest() == file.md5


def test_missing_source_says_what_is_looked_for_and_where(photographs, tmp_path):
    message = refusal(tmp_path, tmp_path / "out")
    for part in ("data.root", "stl10_binary.tar.gz", "stl10_binary/", "ai.stanford.edu"):
        assert part in message
