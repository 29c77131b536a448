import gzip

import numpy as np
import pytest
from copies import refusal
from local_server import fail, send
from mnist_miniature import NAMES, Miniature, idx_bytes

from dpatlas.data.download import download
from dpatlas.data.prepare import prepare
from dpatlas.errors import RunError

ALL = {"classes": list(range(10))}
TRAIN_IMAGES = "train-images-idx3-ubyte"


def refused(root, out) -> str:
    return refusal("mnist", root, out, ALL)


@pytest.fixture
def mnist(monkeypatch) -> Miniature:
    return Miniature(monkeypatch)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("packed", [True, False])
def test_other_content_of_the_same_shape_is_refused(mnist, tmp_path, name, packed):
    mnist.write_unpacked(tmp_path)
    content = bytearray(mnist.contents[name])
    content[-1] ^= 1
    (tmp_path / name).write_bytes(content)
    if packed:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    message = refused(tmp_path, tmp_path / "out")
    assert name in message and "md5" in message and (".gz" in message) == packed


@pytest.mark.parametrize("name", NAMES)
def test_truncated_archive_is_refused(mnist, tmp_path, name):
    mnist.write_archives(tmp_path)
    (tmp_path / f"{name}.gz").write_bytes(mnist.archives[name][:-10])
    message = refused(tmp_path, tmp_path / "out")
    assert f"{name}.gz" in message and "truncated or damaged gzip file" in message


def test_damaged_gzip_sum_is_refused_though_the_content_is_whole(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    archive = bytearray(mnist.archives[TRAIN_IMAGES])
    archive[-5] ^= 1
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(archive)
    assert "truncated or damaged gzip file" in refused(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        lambda images: images.reshape(-1, 14, 56),
        lambda images: images[1:],
        lambda images: np.repeat(images, 2, axis=0),
    ],
    ids=["other sides", "one image fewer", "twice as many"],
)
def test_images_of_another_shape_are_refused_even_as_published(mnist, tmp_path, change):
    content = idx_bytes(change(mnist.splits["train"][0]))
    mnist.register(train_images_idx3_ubyte=content)
    mnist.write_unpacked(tmp_path)
    (tmp_path / TRAIN_IMAGES).write_bytes(content)
    message = refused(tmp_path, tmp_path / "out")
    assert TRAIN_IMAGES in message and "another header or length" in message
    assert "33 x 28 x 28 bytes" in message


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_file_that_is_no_idx_file_is_refused(mnist, tmp_path, content):
    mnist.write_unpacked(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(content)
    message = refused(tmp_path, tmp_path / "out")
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
    assert "another header or length" in refused(tmp_path, tmp_path / "out")
    assert max(sizes) == len(mnist.contents[TRAIN_IMAGES]) + 1


def test_incomplete_copy_says_what_belongs_to_it(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").unlink()
    message = refused(tmp_path, tmp_path / "out")
    assert "no copy of mnist" in message and str(tmp_path) in message
    assert all(name in message for name in NAMES) and "permission to download" in message
    assert message.endswith(f"; {tmp_path} lacks t10k-images-idx3-ubyte")


def test_a_folder_in_place_of_a_file_is_no_file(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    (tmp_path / f"{TRAIN_IMAGES}.gz").unlink()
    (tmp_path / f"{TRAIN_IMAGES}.gz").mkdir()
    assert f"; {tmp_path} lacks {TRAIN_IMAGES}" in refused(tmp_path, tmp_path / "out")


def served(mnist, server, content=lambda name: None):
    mnist.register(address=server.address)
    server.answers = [content(name) or send(mnist.archives[name]) for name in NAMES]


@pytest.mark.parametrize("kind", ["missing", "packed anew"])
def test_download_of_another_file_fails_and_keeps_those_before(mnist, server, tmp_path, kind):
    bad = {
        "missing": fail(404),
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
