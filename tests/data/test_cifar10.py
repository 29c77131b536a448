import pickle
import tarfile

import numpy as np
import pytest
from cifar10_miniature import batch_bytes, jpeg_bytes

from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import load
from dpatlas.errors import InputError

FORMS = ("write_archive", "write_unpacked", "write_jpeg_tar", "write_jpeg_folder")


def prepared(root, options, out):
    # The default cache is relative to the working folder and must not be seen here.
    prepare("cifar10", options, out, data_root=root, download_folder=out / "cache")
    return load(out)


def refusal(root, options, out) -> str:
    with pytest.raises(InputError) as caught:
        prepared(root, options, out)
    assert "\n" not in str(caught.value)
    assert not (out / "arrays.npz").exists() and not (out / "manifest.json").exists()
    return str(caught.value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("folder", ["", "cifar10"])
def test_each_accepted_form_gives_the_selected_images(miniature, two, tmp_path, form, folder):
    (tmp_path / "root" / folder).mkdir(parents=True)
    getattr(miniature, form)(tmp_path / "root" / folder)
    found = prepared(tmp_path / "root", two, tmp_path / "out")
    expected = {}
    for split, names in {"train": list(miniature.batches)[:5], "add": ["test_batch"]}.items():
        data = np.concatenate([miniature.batches[name][0] for name in names])
        labels = np.concatenate([miniature.batches[name][1] for name in names])
        expected[split] = data[labels == 1]
    tolerance = 6 if "jpeg" in form else 0
    for split, x, y in (("train", found.x_train, found.y_train), ("add", found.x_add, found.y_add)):
        pixels = np.rint((x[y == 1] + 1) * 127.5)
        assert x.dtype == np.float32 and y.dtype == np.int64
        assert np.bincount(y).tolist() == [len(expected[split])] * 2
        gaps = np.abs(pixels[:, None] - expected[split][None]).max(axis=2)
        assert (gaps.min(axis=0) <= tolerance).all()
    official = found.manifest["source"]["kind"].startswith("official")
    assert official == (form in ("write_archive", "write_unpacked"))


def test_packed_and_unpacked_official_copies_have_the_same_content(miniature, two, tmp_path):
    for form in ("write_archive", "write_unpacked"):
        (tmp_path / form).mkdir()
        getattr(miniature, form)(tmp_path / form)
    one = prepared(tmp_path / "write_archive", two, tmp_path / "one")
    other = prepared(tmp_path / "write_unpacked", two, tmp_path / "other")
    assert one.sha256 == other.sha256


def test_jpeg_tar_and_folder_have_the_same_content(miniature, two, tmp_path):
    for form in ("write_jpeg_tar", "write_jpeg_folder"):
        (tmp_path / form).mkdir()
        getattr(miniature, form)(tmp_path / form)
    one = prepared(tmp_path / "write_jpeg_tar", two, tmp_path / "one")
    other = prepared(tmp_path / "write_jpeg_folder", two, tmp_path / "other")
    assert one.sha256 == other.sha256


def test_official_copy_is_preferred_to_a_jpeg_copy(miniature, two, tmp_path):
    miniature.write_jpeg_tar(tmp_path)
    miniature.write_archive(tmp_path)
    found = prepared(tmp_path, two, tmp_path / "out")
    assert found.manifest["source"]["kind"] == "official archive"


def test_order_of_the_classes_names_the_labels(miniature, tmp_path):
    miniature.write_archive(tmp_path)
    found = prepared(tmp_path, {"classes": ["truck", "airplane", "cat"]}, tmp_path / "out")
    levels = [np.rint((found.x_train[found.y_train == k, -1] + 1) * 127.5).mean() for k in range(3)]
    assert levels == [20 * 9 + 31, 31, 20 * 3 + 31]


@pytest.mark.parametrize("form", ["write_archive", "write_jpeg_tar"])
def test_read_only_root_is_enough(miniature, two, tmp_path, form):
    root = tmp_path / "root"
    root.mkdir()
    getattr(miniature, form)(root).chmod(0o400)
    root.chmod(0o500)
    before = sorted(root.rglob("*"))
    prepared(root, two, tmp_path / "out")
    assert sorted(root.rglob("*")) == before
    root.chmod(0o700)


def test_archive_with_another_md5_is_never_unpickled(miniature, two, tmp_path, monkeypatch):
    path = miniature.write_archive(tmp_path)
    path.write_bytes(miniature.archive_bytes(test_batch=b"not the published batch"))
    monkeypatch.setattr("dpatlas.data.cifar._unpickle", lambda *_: pytest.fail("unpickled"))
    message = refusal(tmp_path, two, tmp_path / "out")
    assert "cifar-10-python.tar.gz" in message and "md5" in message


def test_truncated_official_archive_is_refused(miniature, two, tmp_path):
    path = miniature.write_archive(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    assert "md5" in refusal(tmp_path, two, tmp_path / "out")


def test_published_but_unreadable_archive_is_refused(miniature, two, tmp_path):
    whole = miniature.archive_bytes()
    for content in (whole[: len(whole) // 2], b"<html>not found</html>"):
        miniature.register(archive=content)
        (tmp_path / "cifar-10-python.tar.gz").write_bytes(content)
        assert "truncated or damaged archive" in refusal(tmp_path, two, tmp_path / "out")


def test_changed_batch_of_an_unpacked_copy_is_refused(miniature, two, tmp_path):
    folder = miniature.write_unpacked(tmp_path)
    (folder / "data_batch_3").write_bytes(b"something else")
    assert "data_batch_3" in refusal(tmp_path, two, tmp_path / "out")


def test_missing_batch_is_named(miniature, two, tmp_path):
    folder = miniature.write_unpacked(tmp_path)
    (folder / "data_batch_4").unlink()
    (folder / "test_batch").unlink()
    message = refusal(tmp_path, two, tmp_path / "out")
    assert "cifar-10-batches-py: found no data_batch_4, test_batch; allowed" in message


def test_missing_folders_of_a_jpeg_copy_are_named(miniature, two, tmp_path):
    folder = miniature.write_jpeg_folder(tmp_path) / "test/automobile"
    folder.rename(folder.with_name("cars"))
    assert "no folders test/automobile" in refusal(tmp_path, two, tmp_path / "out")


class Hostile:
    def __reduce__(self):
        return (exec, ("open('proof', 'w').close()",))


def test_hostile_pickle_runs_nothing(miniature, two, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Hostile(), protocol=2))  # noqa: S301
    assert (tmp_path / "proof").exists()
    (tmp_path / "proof").unlink()
    miniature.write_archive(tmp_path, data_batch_2=pickle.dumps(Hostile(), protocol=2))
    message = refusal(tmp_path, two, tmp_path / "out")
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
def test_batch_with_other_content_is_refused(miniature, two, tmp_path, content):
    miniature.write_archive(tmp_path, data_batch_5=content)
    assert "data_batch_5" in refusal(tmp_path, two, tmp_path / "out")


def test_wrong_count_names_class_and_split(miniature, two, tmp_path):
    images = miniature.images()
    del images["test/automobile/0001.jpg"]
    miniature.write_jpeg_tar(tmp_path, images)
    message = refusal(tmp_path, two, tmp_path / "out")
    assert "1 test images of class automobile" in message and "2 of them" in message


def test_truncated_jpeg_tar_is_refused(miniature, two, tmp_path):
    path = miniature.write_jpeg_tar(tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    assert "truncated or damaged archive" in refusal(tmp_path, two, tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"not an image", "cannot be decoded"),
        (jpeg_bytes(np.zeros((32, 32, 3), np.uint8))[:200], "cannot be decoded"),
        (jpeg_bytes(np.zeros((33, 32, 3), np.uint8)), "32 x 33 pixels"),
        (jpeg_bytes(np.zeros((32, 32), np.uint8)), "1 channels"),
    ],
)
def test_image_that_does_not_fit_is_named(miniature, two, tmp_path, content, found):
    images = miniature.images() | {"train/airplane/0003.jpg": content}
    miniature.write_jpeg_tar(tmp_path, images)
    message = refusal(tmp_path, two, tmp_path / "out")
    assert "train/airplane/0003.jpg" in message and found in message


def test_unselected_classes_are_not_decoded(miniature, two, tmp_path):
    miniature.write_jpeg_tar(tmp_path, miniature.images() | {"train/frog/0003.jpg": b"no image"})
    assert len(prepared(tmp_path, two, tmp_path / "out").y_train) == 10


def test_names_that_leave_the_archive_and_links_are_ignored(miniature, two, tmp_path):
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
    assert len(prepared(tmp_path, two, tmp_path / "out").y_train) == 10
    assert {path for path in tmp_path.parent.rglob("*") if "out" not in path.parts} == before


def test_missing_source_says_what_is_looked_for_and_where(miniature, two, tmp_path):
    message = refusal(tmp_path, two, tmp_path / "out")
    for part in ("data.root", str(tmp_path), "cifar-10-python.tar.gz", "cifar10_images.tar.xz"):
        assert part in message
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz" in message


def test_root_that_does_not_exist_is_refused(miniature, two, tmp_path):
    assert "data.root" in refusal(tmp_path / "nowhere", two, tmp_path / "out")
