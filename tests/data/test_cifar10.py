import pickle
import tarfile

import numpy as np
import pytest
from cifar10_miniature import batch_bytes, jpeg_bytes
from copies import Hostile, prepared, refusal

TWO = {"classes": ["airplane", "automobile"]}


def refused(root, out) -> str:
    return refusal("cifar10", root, out, TWO)


def test_a_jpeg_copy_holds_the_images_of_the_official_one_which_is_preferred(miniature, tmp_path):
    path = miniature.write_jpeg_tar(tmp_path)
    jpeg = prepared("cifar10", tmp_path, tmp_path / "jpeg", TWO)
    miniature.write_archive(tmp_path)
    official = prepared("cifar10", tmp_path, tmp_path / "official", TWO)
    kinds = [found.manifest["source"]["kind"] for found in (jpeg, official)]
    assert kinds == ["JPEG copy from a tar file", "official archive"] and path.exists()
    for part in ("train", "add"):
        rows = [np.rint((getattr(each, f"x_{part}") + 1) * 127.5) for each in (jpeg, official)]
        gaps = np.abs(rows[0][:, None] - rows[1][None]).max(axis=2)
        assert (gaps.min(axis=0) <= 6).all() and len(rows[0]) == len(rows[1])


def test_missing_folders_of_a_jpeg_copy_are_named(miniature, tmp_path):
    folder = miniature.write_jpeg_folder(tmp_path) / "test/automobile"
    folder.rename(folder.with_name("cars"))
    assert "no folders test/automobile" in refused(tmp_path, tmp_path / "out")


def test_hostile_pickle_runs_nothing(miniature, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Hostile(), protocol=2))  # noqa: S301
    assert (tmp_path / "proof").exists()
    (tmp_path / "proof").unlink()
    miniature.write_archive(tmp_path, data_batch_2=pickle.dumps(Hostile(), protocol=2))
    message = refused(tmp_path, tmp_path / "out")
    assert "data_batch_2" in message and "exec" in message
    assert not (tmp_path / "proof").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02",
        batch_bytes([1, 2]),
        batch_bytes({b"data": np.zeros((3, 3072), np.uint8)}),
        batch_bytes({b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 2]}),
        batch_bytes({b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]}),
        batch_bytes({b"data": np.zeros((2, 3072), np.int32), b"labels": [1, 2]}),
        batch_bytes({b"data": b"bytes", b"labels": [1, 2]}),
    ],
)
def test_batch_with_other_content_is_refused(miniature, tmp_path, content):
    miniature.write_archive(tmp_path, data_batch_5=content)
    assert "data_batch_5" in refused(tmp_path, tmp_path / "out")


def test_wrong_count_names_class_and_split(miniature, tmp_path):
    images = miniature.images()
    del images["test/automobile/0001.jpg"]
    miniature.write_jpeg_tar(tmp_path, images)
    message = refused(tmp_path, tmp_path / "out")
    assert "1 test images of class automobile" in message and "2 of them" in message


def test_truncated_jpeg_tar_is_refused(miniature, tmp_path):
    path = miniature.write_jpeg_tar(tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    assert "truncated or damaged archive" in refused(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"not an image", "cannot be decoded"),
        (jpeg_bytes(np.zeros((32, 32, 3), np.uint8))[:200], "cannot be decoded"),
        (jpeg_bytes(np.zeros((33, 32, 3), np.uint8)), "32 x 33 pixels"),
        (jpeg_bytes(np.zeros((32, 32), np.uint8)), "1 channels"),
    ],
)
def test_image_that_does_not_fit_is_named(miniature, tmp_path, content, found):
    images = miniature.images() | {"train/airplane/0003.jpg": content}
    miniature.write_jpeg_tar(tmp_path, images)
    message = refused(tmp_path, tmp_path / "out")
    assert "train/airplane/0003.jpg" in message and found in message


def test_unselected_classes_are_not_decoded(miniature, tmp_path):
    miniature.write_jpeg_tar(tmp_path, miniature.images() | {"train/frog/0003.jpg": b"no image"})
    assert len(prepared("cifar10", tmp_path, tmp_path / "out", TWO).y_train) == 10


def test_names_that_leave_the_archive_and_links_are_ignored(miniature, tmp_path):
    extras = [
        (name, b"no image")
        for name in (
            "../train/airplane/0000.jpg",
            "/train/airplane/0000.jpg",
            "train/airplane/../airplane/0000.jpg",
            "train/airplane/0000.jpg.exe",
            "train/airplane/00.jpg\n",
        )
    ]
    link = tarfile.TarInfo("train/airplane/0007.jpg")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    miniature.write_jpeg_tar(tmp_path / "", extras=[*extras, link])
    before = {path for path in tmp_path.parent.rglob("*") if "out" not in path.parts}
    assert len(prepared("cifar10", tmp_path, tmp_path / "out", TWO).y_train) == 10
    assert {path for path in tmp_path.parent.rglob("*") if "out" not in path.parts} == before
