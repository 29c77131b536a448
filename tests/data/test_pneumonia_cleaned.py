"""The X-rays that a list of images and labels chooses."""

import hashlib

import numpy as np
import pytest
from pneumonia_miniature import LEVELS, PER_CAUSE, THREE, prepared, refusal

from dpatlas.data.registry import DATA_SETS
from dpatlas.data.sets.pneumonia import (
    PNEUMONIA_224,
    PNEUMONIA_224_CLEANED,
    PNEUMONIA_CAUSES,
    PNEUMONIA_CAUSES_CLEANED,
)

NAME = "pneumonia_causes-cleaned"
FORMS = ("write_archive", "write_unpacked")


def refused(xrays, folder, rows, **options) -> str:
    xrays.write_archive(folder)
    xrays.write_labels(folder, rows, **options)
    message = refusal(folder, folder / "out", THREE, NAME)
    assert "chest_xray_labels.csv" in message
    return message


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_totals_are_those_of_the_paper_and_all_else_is_the_published_set_s():
    pairs = [(PNEUMONIA_CAUSES, PNEUMONIA_CAUSES_CLEANED), (PNEUMONIA_224, PNEUMONIA_224_CLEANED)]
    for whole, cleaned in pairs:
        assert cleaned.totals == {"train": 5163, "test": 624} and not cleaned.counts
        for field in ("classes", "image_shape", "scaling", "licence", "files"):
            assert getattr(whole, field) == getattr(cleaned, field)
        assert not whole.totals and not whole.label_file
        assert sum(cleaned.totals.values()) == 5787 and "5,787" in cleaned.what


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [NAME, "pneumonia-224-cleaned"])
def test_the_list_chooses_images_and_classes(xrays, tmp_path, form, name):
    (tmp_path / "pneumonia").mkdir()
    getattr(xrays, form)(tmp_path / "pneumonia")
    xrays.write_labels(tmp_path / "pneumonia")
    found = prepared(tmp_path, tmp_path / "out", THREE, name)
    assert found.image_shape == DATA_SETS[name].image_shape
    normal, bacteria, virus = PER_CAUSE["train"]
    assert np.bincount(found.y_train).tolist() == [normal, bacteria, virus - 1]
    assert np.bincount(found.y_add).tolist() == list(PER_CAUSE["test"])
    bounds = np.array([*LEVELS.values()][1:]) - 1
    np.testing.assert_array_equal(found.y_train, np.digitize(255 * found.x_train[:, 0], bounds))


def test_the_list_s_label_counts_whatever_folder_and_name_say(xrays, tmp_path):
    rows = [(file, "virus" if "NORMAL" in file else label) for file, label in xrays.labels()]
    xrays.write_archive(tmp_path)
    xrays.write_labels(tmp_path, rows)
    found = prepared(tmp_path, tmp_path / "out", {"classes": ["virus", "bacteria"]}, NAME)
    normal, bacteria, virus = PER_CAUSE["train"]
    assert np.bincount(found.y_train).tolist() == [virus - 1 + normal, bacteria]


def test_a_list_as_a_spreadsheet_writes_it_is_the_same(xrays, tmp_path):
    xrays.write_archive(tmp_path)
    path = xrays.write_labels(tmp_path)
    plain = prepared(tmp_path, tmp_path / "one", THREE, NAME)
    lines = path.read_text().replace("\n", "\r\n") + "\r\n"
    path.write_bytes(b"\xef\xbb\xbf" + lines.encode())
    assert prepared(tmp_path, tmp_path / "two", THREE, NAME).sha256 == plain.sha256


@pytest.mark.parametrize("form", FORMS)
def test_the_checksum_covers_copy_and_list(xrays, tmp_path, form):
    def checksum(place):
        found = prepared(tmp_path, tmp_path / place, THREE, NAME)
        return found.manifest["source"]["checksum"]

    copy = getattr(xrays, form)(tmp_path)
    labels = xrays.write_labels(tmp_path)
    found = {checksum("one")}
    if form == "write_archive":
        lines = [(path.name, sha256(path.read_bytes())) for path in (copy, labels)]
        expected = "".join(f"{name} {digest}\n" for name, digest in lines)
        assert found == {f"sha256:{sha256(expected.encode())}"}
    labels.write_text(labels.read_text() + "\n")
    found.add(checksum("two"))
    labels.write_text(labels.read_text()[:-1])
    images = xrays.images()
    name = next(name for name, label in xrays.labels() if label == "normal")
    getattr(xrays, form)(tmp_path, images | {name: images[name] + b"\0"})
    found.add(checksum("three"))
    assert len(found) == 3


def test_a_copy_without_a_list_is_not_taken_and_named(xrays, tmp_path):
    (tmp_path / "root/pneumonia").mkdir(parents=True)
    path = xrays.write_archive(tmp_path / "root")
    message = refusal(tmp_path / "root", tmp_path / "out", THREE, NAME)
    assert message.endswith(f"; {path} has no chest_xray_labels.csv beside it")
    assert "ChestXRay2017.zip with chest_xray_labels.csv beside it" in message
    assert "file (a path in the archive) and label (normal, bacteria, virus)" in message
    xrays.write_unpacked(tmp_path / "root/pneumonia")
    xrays.write_labels(tmp_path / "root/pneumonia")
    source = prepared(tmp_path / "root", tmp_path / "out", THREE, NAME).manifest["source"]
    assert source["file"] == "chest_xray"


def test_the_published_set_takes_no_notice_of_the_list(xrays, tmp_path):
    xrays.write_archive(tmp_path)
    xrays.write_labels(tmp_path, [])
    found = prepared(tmp_path, tmp_path / "out", THREE, "pneumonia_causes")
    assert np.bincount(found.y_train).tolist() == list(PER_CAUSE["train"])


FIRST = "chest_xray/train/NORMAL/NORMAL2-IM-0000-0001.jpeg"


def exchanged(rows, old, new):
    assert any(file == old for file, _ in rows)
    return [(new if file == old else file, label) for file, label in rows]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda rows: exchanged(rows, FIRST, FIRST.replace("0000", "9999")),
            [FIRST.replace("0000", "9999"), "which is not in the copy; allowed"],
        ),
        (
            lambda rows: exchanged(
                rows,
                "chest_xray/train/PNEUMONIA/person7_bacteria_8.jpeg",
                "chest_xray/test/PNEUMONIA/person7_bacteria_8.jpeg",
            ),
            [
                "chest_xray/test/PNEUMONIA/person7_bacteria_8.jpeg",
                "not in the copy, but chest_xray/train/PNEUMONIA/person7_bacteria_8.jpeg is",
            ],
        ),
        (lambda rows: [*rows, (FIRST, "normal")], ["line 18", FIRST, "which line 17 has too"]),
        (lambda rows: [("a/b.jpeg", "virus"), *rows], ["line 2", "'a/b.jpeg'"]),
        (lambda rows: [("../" + FIRST, "normal"), *rows], ["line 2", f"'../{FIRST}'"]),
        (lambda rows: [*rows[:3], (rows[3][0], "covid")], ["line 5", "label 'covid'"]),
        (lambda rows: [(rows[0][0],), *rows[1:]], ["line 2", "1 columns"]),
        (lambda rows: rows[:-1], ["found 9 train images; allowed: 10 of them"]),
        (lambda rows: [], ["found 0 train images; allowed: 10"]),
        (lambda rows: [('"open', "virus")], ["no csv file"]),
    ],
)
def test_what_is_wrong_in_a_list_is_named(xrays, tmp_path, change, words):
    message = refused(xrays, tmp_path, change(xrays.labels()))
    for word in words:
        assert word in message


@pytest.mark.parametrize("header", ["", "label,file", "file,label,more"])
def test_another_header_is_refused(xrays, tmp_path, header):
    message = refused(xrays, tmp_path, None, header=header)
    assert "line " in message and "allowed: file,label" in message


def test_a_total_too_many_is_refused(xrays, tmp_path):
    every = [*xrays.labels()]
    every += [(name, "virus") for name in set(xrays.images()) - {file for file, _ in every}]
    assert "found 11 train images; allowed: 10" in refused(xrays, tmp_path, every)


def test_a_list_that_is_no_text_or_no_file_or_too_large_is_refused(xrays, tmp_path):
    xrays.write_archive(tmp_path)
    path = tmp_path / "chest_xray_labels.csv"
    path.write_bytes(b"file,label\n\xff\xfe\n")
    assert "a csv file in UTF-8" in refusal(tmp_path, tmp_path / "out", THREE, NAME)
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    assert "more than 8388608 bytes" in refusal(tmp_path, tmp_path / "out", THREE, NAME)
    path.unlink()
    path.mkdir()
    assert "found a folder; allowed: a file" in refusal(tmp_path, tmp_path / "out", THREE, NAME)
    path.rmdir()
    path.write_bytes(b"")
    assert "an empty file" in refusal(tmp_path, tmp_path / "out", THREE, NAME)
