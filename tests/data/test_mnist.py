import gzip

import numpy as np
import pytest
from local_server import fail, send
from mnist_miniature import NAMES, PER_CLASS, Miniature, idx_bytes

from dpatlas.data.download import download
from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import load
from dpatlas.data.sets.mnist import MNIST
from dpatlas.errors import InputError, RunError

FORMS = ("write_archives", "write_unpacked", "write_packed_anew", "write_mixed")
ALL = {"classes": list(range(10))}
TRAIN_IMAGES = "train-images-idx3-ubyte"


@pytest.fixture
def mnist(monkeypatch) -> Miniature:
    return Miniature(monkeypatch)


def prepared(root, options, out):
    # The default cache is relative to the working folder and must not be seen here.
    prepare("mnist", options, out, data_root=root, download_folder=out / "cache")
    return load(out)


def refusal(root, out, options=ALL) -> str:
    with pytest.raises(InputError) as caught:
        prepared(root, options, out)
    assert "\n" not in str(caught.value)
    assert not (out / "arrays.npz").exists() and not (out / "manifest.json").exists()
    return str(caught.value)


def rows(x) -> set[bytes]:
    return {row.tobytes() for row in np.rint(255 * x).astype(np.uint8)}


def test_counts_are_the_published_ones():
    assert {split: sum(counts) for split, counts in MNIST.counts.items()} == {
        "train": 60_000,
        "test": 10_000,
    }
    assert MNIST.counts["train"][5] == 5421 and MNIST.counts["test"][5] == 892


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("folder", ["", "mnist"])
def test_every_packing_gives_the_images_and_labels(mnist, tmp_path, form, folder):
    (tmp_path / "root" / folder).mkdir(parents=True)
    getattr(mnist, form)(tmp_path / "root" / folder)
    found = prepared(tmp_path / "root", ALL, tmp_path / "out")
    assert found.manifest["image_shape"] == [1, 28, 28]
    assert found.x_train.min() == 0 and found.x_train.max() == 1
    for split, x, y in (
        ("train", found.x_train, found.y_train),
        ("test", found.x_add, found.y_add),
    ):
        assert np.bincount(y).tolist() == list(PER_CLASS[split])
        np.testing.assert_array_equal(np.rint(255 * x[:, 0]), y)
        assert rows(x) == {image.tobytes() for image in mnist.splits[split][0]}


def test_packing_changes_neither_content_nor_checksum(mnist, tmp_path):
    found = []
    for form in FORMS:
        (tmp_path / form).mkdir()
        getattr(mnist, form)(tmp_path / form)
        found.append(prepared(tmp_path / form, ALL, tmp_path / f"{form}-out"))
    assert len({each.manifest["source"]["checksum"] for each in found}) == 1
    assert len({each.sha256 for each in found}) == 1


def test_order_of_the_classes_names_the_labels(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    found = prepared(tmp_path, {"classes": [7, 0, 3]}, tmp_path / "out")
    digits = np.rint(255 * found.x_train[:, 0]).astype(int)
    assert np.array([7, 0, 3])[found.y_train].tolist() == digits.tolist()


def test_images_of_a_class_keep_the_order_of_the_file(mnist, tmp_path):
    from dpatlas.data.registry import find
    from dpatlas.data.sets import mnist as module

    mnist.write_archives(tmp_path)
    source = module.locate(find("mnist"), [tmp_path])
    pixels, labels = module.read(source, find("mnist"), ["4", "1"]).splits["train"]
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert (np.diff(pixels[:3, 1].astype(int)) > 0).all()
    assert (np.diff(pixels[3:, 1].astype(int)) > 0).all()


def test_parts_are_disjoint_and_come_from_their_splits(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    options = ALL | {"n_train": 20, "n_validation": 13, "n_add": 11, "n_test": 10, "selection": 3}
    found = prepared(tmp_path, options, tmp_path / "out")
    train, validation = rows(found.x_train), rows(found.x_validation)
    add, test = rows(found.x_add), rows(found.x_test)
    assert [len(part) for part in (train, validation, add, test)] == [20, 13, 11, 10]
    assert not train & validation and not add & test
    assert train | validation == {image.tobytes() for image in mnist.splits["train"][0]}
    assert add | test == {image.tobytes() for image in mnist.splits["test"][0]}
    other = prepared(tmp_path, options | {"selection": 4}, tmp_path / "other")
    assert rows(other.x_train) != train


def test_read_only_root_is_enough(mnist, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    mnist.write_archives(root)
    root.chmod(0o500)
    before = sorted(root.rglob("*"))
    prepared(root, ALL, tmp_path / "out")
    assert sorted(root.rglob("*")) == before
    root.chmod(0o700)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("packed", [True, False])
def test_other_content_of_the_same_shape_is_refused(mnist, tmp_path, name, packed):
    mnist.write_unpacked(tmp_path)
    content = bytearray(mnist.contents[name])
    content[-1] ^= 1
    (tmp_path / name).write_bytes(content)
    if packed:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    message = refusal(tmp_path, tmp_path / "out")
    assert name in message and "md5" in message and (".gz" in message) == packed


@pytest.mark.parametrize("name", NAMES)
def test_truncated_archive_is_refused(mnist, tmp_path, name):
    mnist.write_archives(tmp_path)
    (tmp_path / f"{name}.gz").write_bytes(mnist.archives[name][:-10])
    message = refusal(tmp_path, tmp_path / "out")
    assert f"{name}.gz" in message and "truncated or damaged gzip file" in message


def test_archive_that_is_no_gzip_file_is_refused(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(b"<html>not found</html>")
    assert "truncated or damaged gzip file" in refusal(tmp_path, tmp_path / "out")


def test_damaged_gzip_sum_is_refused_though_the_content_is_whole(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    archive = bytearray(mnist.archives[TRAIN_IMAGES])
    archive[-5] ^= 1
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(archive)
    assert "truncated or damaged gzip file" in refusal(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        lambda images: images.reshape(-1, 14, 56),
        lambda images: images[1:],
        lambda images: images.reshape(len(images), 784),
        lambda images: np.repeat(images, 2, axis=0),
    ],
    ids=["other sides", "one image fewer", "no columns", "twice as many"],
)
def test_images_of_another_shape_are_refused_even_as_published(mnist, tmp_path, change):
    content = idx_bytes(change(mnist.splits["train"][0]))
    mnist.register(train_images_idx3_ubyte=content)
    mnist.write_unpacked(tmp_path)
    (tmp_path / TRAIN_IMAGES).write_bytes(content)
    message = refusal(tmp_path, tmp_path / "out")
    assert TRAIN_IMAGES in message and "another header or length" in message
    assert "33 x 28 x 28 bytes" in message


@pytest.mark.parametrize("content", [b"", b"\x00\x00\x08", b"x" * 100])
def test_file_that_is_no_idx_file_is_refused(mnist, tmp_path, content):
    mnist.write_unpacked(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(content)
    message = refusal(tmp_path, tmp_path / "out")
    assert "t10k-labels-idx1-ubyte" in message and "another header or length" in message


def test_bytes_after_the_last_image_are_refused_and_not_unpacked(mnist, tmp_path, monkeypatch):
    mnist.write_archives(tmp_path)
    bomb = gzip.compress(mnist.contents[TRAIN_IMAGES] + bytes(50_000_000))
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(bomb)
    sizes = []
    read = gzip.GzipFile.read
    monkeypatch.setattr(
        gzip.GzipFile, "read", lambda *given: sizes.append(len(found := read(*given))) or found
    )
    assert "another header or length" in refusal(tmp_path, tmp_path / "out")
    assert max(sizes) == len(mnist.contents[TRAIN_IMAGES]) + 1


def test_wrong_counts_name_class_and_split(mnist, tmp_path):
    _, labels = mnist.splits["test"]
    labels = np.where(np.arange(len(labels)) == np.flatnonzero(labels == 4)[0], 5, labels)
    content = idx_bytes(labels.astype(np.uint8))
    mnist.register(t10k_labels_idx1_ubyte=content)
    mnist.write_unpacked(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(content)
    message = refusal(tmp_path, tmp_path / "out")
    assert "1 test images of class 4" in message and "2 of them" in message


def test_incomplete_copy_says_what_belongs_to_it(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").unlink()
    message = refusal(tmp_path, tmp_path / "out")
    assert "no copy of mnist" in message and str(tmp_path) in message
    assert all(name in message for name in NAMES) and "permission to download" in message
    assert message.endswith(f"; {tmp_path} lacks t10k-images-idx3-ubyte")


def test_a_folder_in_place_of_a_file_is_no_file(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    (tmp_path / f"{TRAIN_IMAGES}.gz").unlink()
    (tmp_path / f"{TRAIN_IMAGES}.gz").mkdir()
    assert f"; {tmp_path} lacks {TRAIN_IMAGES}" in refusal(tmp_path, tmp_path / "out")


def served(mnist, server, content=lambda name: None):
    mnist.register(address=server.address)
    server.answers = [content(name) or send(mnist.archives[name]) for name in NAMES]


def test_download_gives_all_four_files(mnist, server, tmp_path):
    served(mnist, server)
    manifest = prepare(
        "mnist",
        ALL,
        tmp_path / "out",
        data_root=None,
        download_folder=tmp_path / "cache",
        allow_download=True,
    )
    assert manifest["source"]["kind"] == "idx files, official content"
    assert server.paths == [f"/mnist/{name}.gz" for name in NAMES]
    for name in NAMES:
        assert (tmp_path / "cache" / f"{name}.gz").read_bytes() == mnist.archives[name]


@pytest.mark.parametrize("kind", ["missing", "truncated", "corrupted", "packed anew"])
def test_download_of_another_file_fails_and_keeps_those_before(mnist, server, tmp_path, kind):
    archive = mnist.archives[NAMES[2]]
    bad = {
        "missing": fail(404),
        "truncated": send(archive[:50], length=len(archive)),
        "corrupted": send(archive[:-1] + b"?"),
        "packed anew": send(gzip.compress(mnist.contents[NAMES[2]], mtime=1)),
    }
    served(mnist, server, lambda name: bad[kind] if name == NAMES[2] else None)
    with pytest.raises(RunError, match=NAMES[2]):
        download("mnist", tmp_path, attempts=1)
    assert sorted(path.name for path in tmp_path.glob("*.gz")) == [
        f"{name}.gz" for name in sorted(NAMES[:2])
    ]
    server.paths.clear()
    server.answers = [send(mnist.archives[name]) for name in NAMES[2:]]
    # A cache that lacks files is no copy yet, so a second try goes on where the first stopped.
    prepare("mnist", ALL, tmp_path / "out", download_folder=tmp_path, allow_download=True)
    assert server.paths == [f"/mnist/{name}.gz" for name in NAMES[2:]]
