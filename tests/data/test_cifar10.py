import numpy as np
import pytest
from miniatures import Cifar100, batch_bytes, jpeg_bytes, prepared, refusal


def test_a_jpeg_copy_holds_the_images_of_the_official_one_which_is_preferred(miniature, tmp_path):
    path = miniature.write_jpeg_tar(tmp_path)
    jpeg = prepared("cifar10", tmp_path, "jpeg")
    miniature.write_archive(tmp_path)
    official = prepared("cifar10", tmp_path, "official")
    kinds = [found.manifest["source"]["kind"] for found in (jpeg, official)]
    assert kinds == ["JPEG copy from a tar file", "official archive"] and path.exists()
    for part in ("train", "add"):
        rows = [np.rint((getattr(each, f"x_{part}") + 1) * 127.5) for each in (jpeg, official)]
        gaps = np.abs(rows[0][:, None] - rows[1][None]).max(axis=2)
        assert (gaps.min(axis=0) <= 6).all() and len(rows[0]) == len(rows[1])


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02",
        batch_bytes([1, 2]),
        batch_bytes({b"data": np.zeros((3, 3072), np.uint8)}),
        batch_bytes({b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 2]}),
        batch_bytes({b"data": np.zeros((2, 3072), np.int32), b"labels": [1, 2]}),
        batch_bytes({b"data": b"bytes", b"labels": [1, 2]}),
    ],
)
def test_batch_with_other_content_is_refused(miniature, tmp_path, content):
    miniature.write_archive(tmp_path, data_batch_5=content)
    assert "data_batch_5" in refusal("cifar10", tmp_path)


def test_a_batch_of_cifar_10_is_not_taken_for_one_of_cifar_100(monkeypatch, tmp_path):
    fine = Cifar100(monkeypatch)
    data, labels = fine.batches["train"]
    fine.write_archive(tmp_path, train=batch_bytes({b"data": data, b"labels": labels.tolist()}))
    assert "a batch of cifar100" in refusal("cifar100", tmp_path)


def test_wrong_count_and_missing_folder_name_class_and_split(miniature, tmp_path):
    folder = miniature.write_jpeg_folder(tmp_path) / "test/automobile"
    (folder / "0001.jpg").unlink()
    message = refusal("cifar10", tmp_path)
    assert "1 test images of class automobile" in message and "2 of them" in message
    folder.rename(folder.with_name("cars"))
    assert "no folders test/automobile" in refusal("cifar10", tmp_path)


def test_truncated_jpeg_tar_is_refused(miniature, tmp_path):
    path = miniature.write_jpeg_tar(tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    assert "truncated or damaged archive" in refusal("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (jpeg_bytes(np.zeros((32, 32, 3), np.uint8))[:200], "cannot be decoded"),
        (jpeg_bytes(np.zeros((33, 32, 3), np.uint8)), "32 x 33 pixels"),
        (jpeg_bytes(np.zeros((32, 32), np.uint8)), "1 channels"),
    ],
)
def test_image_that_does_not_fit_is_named_if_its_class_is_selected(
    miniature, tmp_path, content, found
):
    miniature.write_jpeg_tar(tmp_path, miniature.images() | {"train/airplane/0003.jpg": content})
    message = refusal("cifar10", tmp_path)
    assert "train/airplane/0003.jpg" in message and found in message
    others = prepared("cifar10", tmp_path, "others", classes=["frog", "automobile"])
    assert len(others.y_train) == 10


def test_names_that_leave_the_archive_are_ignored(miniature, tmp_path):
    names = (
        "../train/airplane/0000.jpg",
        "/train/airplane/0000.jpg",
        "train/airplane/../airplane/0000.jpg",
        "train/airplane/0000.jpg.exe",
        "train/airplane/00.jpg\n",
    )
    miniature.write_jpeg_tar(tmp_path, extras=[(name, b"no image") for name in names])
    assert len(prepared("cifar10", tmp_path).y_train) == 10
