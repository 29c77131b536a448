import gzip

import numpy as np
import pytest
from local_server import fail, send
from miniatures import CLASSES, Mnist, idx_bytes, refusal
from miniatures import MNIST_NAMES as NAMES

from dpatlas.data.prepare import prepare
from dpatlas.errors import RunError

TRAIN_IMAGES = "train-images-idx3-ubyte"


@pytest.fixture
def mnist(monkeypatch) -> Mnist:
    return Mnist(monkeypatch)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("packed", [True, False])
def test_other_content_of_the_same_shape_is_refused(mnist, tmp_path, name, packed):
    mnist.write_unpacked(tmp_path)
    content = bytearray(mnist.contents[name])
    content[-1] ^= 1
    (tmp_path / name).write_bytes(content)
    if packed:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    message = refusal("mnist", tmp_path)
    assert name in message and "md5" in message and (".gz" in message) == packed


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_archive_and_a_damaged_gzip_sum_are_refused(mnist, tmp_path, name):
    whole = mnist.archives[name]
    for damaged in (whole[:-10], whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:]):
        mnist.write_archives(tmp_path)
        (tmp_path / f"{name}.gz").write_bytes(damaged)
        message = refusal("mnist", tmp_path)
        assert f"{name}.gz" in message and "truncated or damaged gzip file" in message


@pytest.mark.parametrize(
    "change",
    [
        lambda images: idx_bytes(images.reshape(-1, 14, 56)),
        lambda images: idx_bytes(images[1:]),
        lambda images: idx_bytes(np.repeat(images, 2, axis=0)),
        lambda images: b"x" * 100,
    ],
    ids=["other sides", "one image fewer", "twice as many", "no idx file"],
)
def test_images_of_another_shape_are_refused_even_as_published(mnist, tmp_path, change):
    content = change(mnist.splits["train"][0])
    mnist.register(train_images_idx3_ubyte=content)
    mnist.write_unpacked(tmp_path)
    (tmp_path / TRAIN_IMAGES).write_bytes(content)
    message = refusal("mnist", tmp_path)
    assert TRAIN_IMAGES in message and "another header or length" in message
    assert "33 x 28 x 28 bytes" in message


def test_incomplete_copy_says_what_belongs_to_it(mnist, tmp_path):
    mnist.write_archives(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").unlink()
    message = refusal("mnist", tmp_path)
    assert "no copy of mnist" in message and all(name in message for name in NAMES)
    assert message.endswith(f"; {tmp_path} lacks t10k-images-idx3-ubyte")


def test_a_second_download_goes_on_with_the_file_that_was_missing(mnist, server, tmp_path):
    def fetch():
        options, cache = {"classes": CLASSES["mnist"]}, {"download_folder": tmp_path}
        prepare("mnist", options, tmp_path / "out", allow_download=True, **cache)

    mnist.register(address=server.address)
    server.answers = [*(send(mnist.archives[name]) for name in NAMES[:2]), fail(404)]
    with pytest.raises(RunError, match=NAMES[2]):
        fetch()
    server.paths.clear()
    server.answers = [send(mnist.archives[name]) for name in NAMES[2:]]
    # A cache that lacks files is no copy yet.
    fetch()
    assert server.paths == [f"/mnist/{name}.gz" for name in NAMES[2:]]
