"""The X-rays that a list of images and labels chooses."""

import hashlib

import numpy as np
import pytest
from miniatures import Xrays, prepared, refusal

from dpatlas.data.registry import DATA_SETS

NAME = "pneumonia_causes-cleaned"
FORMS = ("write_archive", "write_unpacked")
NORMAL, BACTERIA, VIRUS = Xrays.PER_CAUSE["train"]
FIRST = "chest_xray/train/NORMAL/NORMAL2-IM-0000-0001.jpeg"
MOVED = "chest_xray/train/PNEUMONIA/person7_bacteria_8.jpeg"
NOWHERE, MOVED_TO = FIRST.replace("0000", "9999"), MOVED.replace("train", "test")
LEFT_OUT = "chest_xray/train/PNEUMONIA/VIRUS-8-0001.jpeg"


@pytest.fixture
def refused(xrays, tmp_path):
    """The message where that list lies beside the archive."""

    def message(rows, **options) -> str:
        xrays.write_archive(tmp_path)
        xrays.write_labels(tmp_path, rows, **options)
        line = refusal(NAME, tmp_path)
        assert "chest_xray_labels.csv" in line
        return line

    return message


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [NAME, "pneumonia-224-cleaned"])
def test_the_list_chooses_images_and_classes(xrays, tmp_path, form, name):
    (tmp_path / "pneumonia").mkdir()
    getattr(xrays, form)(tmp_path / "pneumonia")
    xrays.write_labels(tmp_path / "pneumonia")
    found = prepared(name, tmp_path)
    assert found.image_shape == DATA_SETS[name].image_shape
    assert np.bincount(found.y_train).tolist() == [NORMAL, BACTERIA, VIRUS - 1]
    assert np.bincount(found.y_add).tolist() == list(Xrays.PER_CAUSE["test"])
    bounds = np.array([*Xrays.LEVELS.values()][1:]) - 1
    np.testing.assert_array_equal(found.y_train, np.digitize(255 * found.x_train[:, 0], bounds))


def test_the_list_s_label_counts_whatever_folder_and_name_say(xrays, tmp_path):
    rows = [(file, "virus" if "NORMAL" in file else label) for file, label in xrays.labels()]
    xrays.write_archive(tmp_path)
    xrays.write_labels(tmp_path, rows)
    found = prepared(NAME, tmp_path, classes=["virus", "bacteria"])
    assert np.bincount(found.y_train).tolist() == [VIRUS - 1 + NORMAL, BACTERIA]
    # The published set takes no notice of the list.
    found = prepared("pneumonia_causes", tmp_path, "published")
    assert np.bincount(found.y_train).tolist() == [NORMAL, BACTERIA, VIRUS]


def test_a_list_as_a_spreadsheet_writes_it_is_the_same(xrays, tmp_path):
    xrays.write_archive(tmp_path)
    path = xrays.write_labels(tmp_path)
    plain = prepared(NAME, tmp_path, "plain")
    lines = path.read_text().replace("\n", "\r\n") + "\r\n"
    path.write_bytes(b"\xef\xbb\xbf" + lines.encode())
    assert prepared(NAME, tmp_path).sha256 == plain.sha256


def test_the_checksum_is_that_of_archive_and_list_and_of_an_unpacked_copy_covers_all(
    xrays, tmp_path
):
    def checksum():
        return prepared(NAME, tmp_path).manifest["source"]["checksum"]

    archive, labels = xrays.write_archive(tmp_path), xrays.write_labels(tmp_path)
    sums = (f"{path.name} {sha256(path.read_bytes())}\n" for path in (archive, labels))
    assert checksum() == f"sha256:{sha256(''.join(sums).encode())}"
    archive.unlink()
    xrays.write_unpacked(tmp_path)
    found = [checksum()]
    for path in (labels, tmp_path / FIRST):
        path.write_bytes(path.read_bytes() + b"\n")
        found.append(checksum())
    assert len(set(found)) == 3


def test_a_copy_without_a_list_is_not_taken_and_named(xrays, tmp_path):
    (tmp_path / "pneumonia").mkdir()
    path = xrays.write_archive(tmp_path)
    message = refusal(NAME, tmp_path)
    assert message.endswith(f"; {path} has no chest_xray_labels.csv beside it")
    assert "file (a path in the archive) and label (normal, bacteria, virus)" in message
    xrays.write_unpacked(tmp_path / "pneumonia")
    xrays.write_labels(tmp_path / "pneumonia")
    assert prepared(NAME, tmp_path).manifest["source"]["file"] == "chest_xray"


def exchanged(old, new):
    return lambda rows: [(new if file == old else file, label) for file, label in rows]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (exchanged(FIRST, NOWHERE), [NOWHERE, "which is not in the copy; allowed"]),
        (exchanged(MOVED, MOVED_TO), [MOVED_TO, f"not in the copy, but {MOVED} is"]),
        (lambda rows: [*rows, (FIRST, "normal")], ["line 18", FIRST, "which line 17 has too"]),
        (lambda rows: [("a/b.jpeg", "virus"), *rows], ["line 2", "'a/b.jpeg'"]),
        (lambda rows: [("../" + FIRST, "normal"), *rows], ["line 2", f"'../{FIRST}'"]),
        (lambda rows: [*rows[:3], (rows[3][0], "covid")], ["line 5", "label 'covid'"]),
        (lambda rows: [(rows[0][0],), *rows[1:]], ["line 2", "1 columns"]),
        (lambda rows: rows[:-1], ["found 9 train images; allowed: 10 of them"]),
        (lambda rows: [], ["found 0 train images; allowed: 10"]),
        (lambda rows: [*rows, (LEFT_OUT, "virus")], ["found 11 train images; allowed: 10"]),
        (lambda rows: [('"open', "virus")], ["no csv file"]),
    ],
)
def test_what_is_wrong_in_a_list_is_named(xrays, refused, change, words):
    message = refused(change(xrays.labels()))
    assert all(word in message for word in words)


@pytest.mark.parametrize("header", ["", "label,file", "file,label,more"])
def test_another_header_is_refused(refused, header):
    message = refused(None, header=header)
    assert "line " in message and "allowed: file,label" in message


def test_a_list_that_is_no_text_or_no_file_or_too_large_is_refused(xrays, tmp_path):
    xrays.write_archive(tmp_path)
    path = tmp_path / "chest_xray_labels.csv"
    path.write_bytes(b"file,label\n\xff\xfe\n")
    assert "a csv file in UTF-8" in refusal(NAME, tmp_path)
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    assert "more than 8388608 bytes" in refusal(NAME, tmp_path)
    path.write_bytes(b"")
    assert "an empty file" in refusal(NAME, tmp_path)
    path.unlink()
    path.mkdir()
    assert "found a folder; allowed: a file" in refusal(NAME, tmp_path)
