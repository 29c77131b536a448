"""A user's own images: what is read of a folder and of an npz file, and what becomes of it."""

import json
import shutil

import numpy as np
import pytest
from own_miniature import CLASSES, COLOUR, GREY, NAME, folder, levels, pile, put
from PIL import Image

from dpatlas.data import own
from dpatlas.data.prepare import main, prepare
from dpatlas.data.prepared import load
from dpatlas.errors import run_command

SPLIT = {"train/healthy": 5, "train/ill": 4, "test/healthy": 3, "test/ill": 2}


def read(path, definition=GREY, classes=CLASSES):
    data_set = own.define(NAME, definition)
    return own.read(own.locate(str(path)), data_set, classes)


def prepared(path, out, definition=GREY, **options):
    chosen = {"classes": CLASSES, "n_add": 0, **options, "own": definition}
    prepare(NAME, chosen, out, own_path=str(path))
    return load(out)


def test_a_folder_with_parts_is_read_class_by_class_in_the_order_of_its_names(tmp_path):
    written = folder(tmp_path, SPLIT)
    splits = read(tmp_path).splits
    for split in ("train", "test"):
        pixels, labels = splits[split]
        parts = [written[f"{split}/{name}"] for name in CLASSES]
        np.testing.assert_array_equal(pixels, np.concatenate(parts).reshape(-1, 30))
        np.testing.assert_array_equal(labels, np.repeat([0, 1], [len(part) for part in parts]))
    found = prepared(tmp_path, tmp_path / "out", n_train=9, n_test=5)
    tests = np.rint(255 * found.x_test).astype(np.uint8)
    assert sorted(map(bytes, tests)) == sorted(map(bytes, splits["test"][0]))


def test_folders_of_classes_alone_are_one_pile(tmp_path):
    pile(tmp_path)
    assert set(read(tmp_path).splits) == {"train"}
    found = prepared(tmp_path, tmp_path / "out", n_train=10, n_test=8, n_validation=6)
    parts = (found.x_train, found.x_test, found.x_validation)
    assert [len(part) for part in parts] == [10, 8, 6]
    assert len(np.unique(np.concatenate(parts), axis=0)) == 24


@pytest.mark.parametrize(("scaling", "low"), [("unit", 0.0), ("centred", -1.0)])
def test_bytes_are_scaled_by_public_constants(tmp_path, scaling, low):
    for name in CLASSES:
        put(tmp_path / name / "a.png", np.array([[0, 255], [51, 102]], dtype=np.uint8))
    definition = {"classes": CLASSES, "image_shape": [1, 2, 2], "scaling": scaling}
    x = prepared(tmp_path, tmp_path / "out", definition, n_train=2).x_train
    np.testing.assert_allclose(x[0], low + (1 - low) * np.array([0, 1, 0.2, 0.4]), atol=1e-7)


def test_colour_is_channels_first_and_grey_only_where_one_channel_is_asked_for(tmp_path):
    written = pile(tmp_path, 2, (6, 5, 3))
    pixels, _ = read(tmp_path, COLOUR).splits["train"]
    np.testing.assert_array_equal(
        pixels[:2], written["healthy"].transpose(0, 3, 1, 2).reshape(2, 90)
    )
    grey, _ = read(tmp_path, GREY).splits["train"]
    weights = written["healthy"].astype(float) @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(grey[:2], weights.reshape(2, 30), atol=1)


@pytest.mark.filterwarnings("error")
def test_a_palette_and_an_opaque_alpha_channel_change_nothing(tmp_path):
    pixels = levels(1, (6, 5, 3))[0]
    put(tmp_path / "healthy/a.png", np.dstack([pixels, np.full((6, 5), 255, np.uint8)]))
    (tmp_path / "ill").mkdir()
    # Of an opacity for each entry Pillow would warn.
    Image.fromarray(pixels).quantize(256).save(tmp_path / "ill/a.png", transparency=b"\xff" * 30)
    found, _ = read(tmp_path, COLOUR).splits["train"]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], pixels.transpose(2, 0, 1).ravel())


def test_resizing_takes_the_central_square(tmp_path):
    wide = np.zeros((8, 40), dtype=np.uint8)
    # The filter looks two target pixels beyond the square.
    wide[:, 12:28] = 200
    for name in CLASSES:
        put(tmp_path / name / "a.png", wide)
    definition = {**GREY, "image_shape": [1, 4, 4], "resize": True}
    pixels, _ = read(tmp_path, definition).splits["train"]
    assert (pixels == 200).all()


def test_the_checksum_is_of_names_and_contents_of_images_and_not_of_the_place(tmp_path):
    pile(tmp_path / "one", 3)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    first = read(tmp_path / "one").checksum
    (tmp_path / "two/README.txt").write_text("scans of 2024")
    (tmp_path / "two/.git").mkdir()
    for hidden in (".DS_Store", "Thumbs.db"):
        (tmp_path / "two/ill" / hidden).touch()
    assert read(tmp_path / "two").checksum == first
    assert read(tmp_path / "two", classes=CLASSES[::-1]).checksum == first
    (tmp_path / "two/ill/000.png").rename(tmp_path / "two/ill/900.png")
    renamed = read(tmp_path / "two").checksum
    put(tmp_path / "one/ill/000.png", levels(1, (6, 5), 99)[0])
    assert len({first, renamed, read(tmp_path / "one").checksum}) == 3


ORDERS = {
    "n x h x w": lambda images: images[:, 0],
    "n x c x h x w": lambda images: images,
    "n x h x w x c": lambda images: images.transpose(0, 2, 3, 1),
    "n x d": lambda images: images.reshape(len(images), -1),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("definition", [GREY, COLOUR], ids=["grey", "colour"])
def test_arrays_of_an_npz_file_may_have_any_usual_order(tmp_path, order, definition):
    if order == "n x h x w" and definition is COLOUR:
        return
    images = levels(7, definition["image_shape"])
    labels = np.array([1, 0, 1, 1, 0, 1, 0])
    np.savez(tmp_path / "a.npz", x_train=ORDERS[order](images), y_train=labels[:, None])
    pixels, found = read(tmp_path / "a.npz", definition).splits["train"]
    expected = np.concatenate([images[labels == 0], images[labels == 1]])
    np.testing.assert_array_equal(pixels, expected.reshape(7, -1))
    assert found.tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_labels_are_places_in_the_definition_and_not_in_the_choice(tmp_path):
    images, labels = levels(6, (6, 5)), np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8)
    parts = {"x_train": images, "y_train": labels, "x_test": images[:3], "y_test": labels[:3]}
    np.savez_compressed(tmp_path / "a.npz", **parts)
    definition = {**GREY, "classes": ["a", "b", "c"]}
    splits = read(tmp_path / "a.npz", definition, ["c", "a"]).splits
    expected = images[[2, 5, 0, 3]].reshape(4, 30)
    np.testing.assert_array_equal(splits["train"][0], expected)
    assert splits["test"][1].tolist() == [0, 1]


def test_a_folder_and_an_npz_file_with_the_same_images_prepare_the_same_records(tmp_path):
    written = pile(tmp_path / "scans", 6)
    images = np.concatenate([written[name] for name in CLASSES])
    np.savez(tmp_path / "a.npz", x_train=images, y_train=np.repeat([0, 1], 6))
    options = {"n_train": 5, "n_test": 3, "norm": 2.0, "selection": 4}
    one = prepared(tmp_path / "scans", tmp_path / "one", **options)
    two = prepared(tmp_path / "a.npz", tmp_path / "two", **options)
    assert one.sha256 == two.sha256
    source = one.manifest["source"]
    assert (source["kind"], source["file"]) == ("own image folder", "scans")
    assert source["checksum"] == read(tmp_path / "scans").checksum
    assert str(tmp_path) not in json.dumps(dict(one.manifest))
    assert two.manifest["source"]["kind"] == "own npz"


def test_the_command_prepares_an_own_set_at_a_path_with_spaces(tmp_path, capsys):
    pile(tmp_path / "my {scans} 'x'", 4)
    options = {"name": NAME, "own": GREY, "classes": CLASSES, "n_train": 6}
    words = ["--options", json.dumps(options), "--output", str(tmp_path / "out")]
    assert run_command(main, [*words, f"--own-path={tmp_path}/my {{scans}} 'x'"]) == 0
    assert "6 train, 2 add, from own image folder" in capsys.readouterr().out
