"""Files made to do harm, and files that may not be read: one line, little memory."""

import builtins
import gzip
import io
import lzma
import os
import struct
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
from miniatures import Cifar10, Cifar100, Mnist, Stl10, Xrays, jpeg_bytes, refusal, zip_bytes

from dpatlas.data.sets import cifar10, pneumonia
from dpatlas.data.sets.cifar10 import CIFAR10
from dpatlas.data.sets.pneumonia import PNEUMONIA
from dpatlas.errors import InputError

MINIATURES = {"cifar10": Cifar10, "cifar100": Cifar100, "stl10": Stl10, "mnist": Mnist}
# How a copy is written, and the file or folder of it that is read.
FORMS = [
    ("cifar10", "write_archive", "cifar-10-python.tar.gz"),
    ("cifar10", "write_unpacked", "cifar-10-batches-py/data_batch_1"),
    ("cifar10", "write_jpeg_tar", "cifar10_images.tar.xz"),
    ("cifar10", "write_jpeg_folder", "train/airplane/0002.jpg"),
    ("cifar10", "write_jpeg_folder", "test/automobile"),
    ("cifar100", "write_archive", "cifar-100-python.tar.gz"),
    ("cifar100", "write_unpacked", "cifar-100-python/test"),
    ("stl10", "write_archive", "stl10_binary.tar.gz"),
    ("stl10", "write_unpacked", "stl10_binary/test_X.bin"),
    ("mnist", "write_archives", "train-labels-idx1-ubyte.gz"),
    ("mnist", "write_unpacked", "t10k-images-idx3-ubyte"),
    ("pneumonia", "write_archive", "ChestXRay2017.zip"),
    ("pneumonia", "write_npz", "pneumoniamnist.npz"),
    ("pneumonia", "write_unpacked", "chest_xray/test/PNEUMONIA"),
    ("pneumonia", "write_unpacked", "chest_xray/train/PNEUMONIA/person7_bacteria_8.jpeg"),
    ("pneumonia_causes-cleaned", "write_labels", "chest_xray_labels.csv"),
]
XRAY = "chest_xray/train/PNEUMONIA/person7_bacteria_8.jpeg"
MB = 1 << 20


@pytest.fixture
def root(tmp_path):
    """A folder for a copy, beside which a set is prepared."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def write(monkeypatch, root):
    """Write a copy into the folder `root`."""

    def make(name, form, *given, **more):
        miniature = MINIATURES.get(name, Xrays)(monkeypatch)
        if form == "write_labels":
            miniature.write_archive(root)
        return getattr(miniature, form)(root, *given, **more)

    return make


@pytest.fixture
def failure(root):
    """The one line of a copy that is refused."""
    return lambda name: refusal(name, root, root.parent / "out")


@pytest.fixture
def cheap_failure(failure):
    """The same, with little memory at any time."""

    def run(name, most=16 * MB) -> str:
        tracemalloc.start()
        try:
            line = failure(name)
            assert tracemalloc.get_traced_memory()[1] < most
            return line
        finally:
            tracemalloc.stop()

    return run


@pytest.mark.parametrize(("name", "form", "path"), FORMS)
def test_what_may_not_be_read_is_named(write, failure, root, monkeypatch, name, form, path):
    write(name, form)
    closed = root / path
    assert closed.exists()

    def guarded(function):
        def call(file, *given, **more):
            if isinstance(file, str | os.PathLike) and os.fspath(file) == str(closed):
                raise PermissionError(13, "Permission denied", str(file))
            return function(file, *given, **more)

        return call

    opening = [(io, "open"), (builtins, "open"), (os, "open"), (os, "listdir"), (os, "scandir")]
    for module, function in opening:
        monkeypatch.setattr(module, function, guarded(getattr(module, function)))
    assert f"{closed}: found Permission denied" in failure(name)


def test_a_root_without_permission_is_named(write, failure, root, monkeypatch):
    write("mnist", "write_archives")
    stat = os.stat

    def guarded(path, *given, **more):
        if str(path).startswith(str(root)):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *given, **more)

    monkeypatch.setattr(os, "stat", guarded)
    monkeypatch.setattr("pathlib.Path.stat", lambda path, **more: guarded(path, **more))
    assert "found Permission denied" in failure("mnist")


@pytest.mark.parametrize(
    ("name", "file", "folder"),
    [
        ("cifar10", "cifar-10-python.tar.gz", "cifar-10-batches-py"),
        ("cifar10", "cifar10_images.tar.xz", "cifar-10-batches-py"),
        ("pneumonia", "ChestXRay2017.zip", "chest_xray"),
        ("pneumonia", "pneumoniamnist.npz", "chest_xray"),
    ],
)
def test_an_archive_that_is_no_file_and_a_copy_that_is_no_folder_are_refused(
    failure, root, name, file, folder
):
    os.mkfifo(root / file)
    assert f"{root / file}: found a special file; allowed: a file" in failure(name)
    (root / file).unlink()
    (root / file).mkdir()
    assert f"{root / file}: found a folder; allowed: a file" in failure(name)
    (root / file).rmdir()
    (root / folder).write_bytes(b"no folder")
    assert f"{root / folder}: found a file; allowed: a folder" in failure(name)


def with_stated_size(archive: bytes, name: str, size: int) -> bytes:
    """A zip whose central directory states another size of member `name`."""
    content = bytearray(archive)
    entry = content.rindex(name.encode()) - 46
    assert content[entry : entry + 4] == b"PK\x01\x02"
    content[entry + 24 : entry + 28] = struct.pack("<I", size)
    return bytes(content)


@pytest.mark.parametrize("form", ["write_archive", "write_npz"])
def test_a_member_that_states_little_and_expands_to_much_is_never_unpacked(
    write, cheap_failure, form
):
    bomb = bytes(24 * MB)
    if form == "write_archive":
        path, name = write("pneumonia", form, extras=[(XRAY, bomb)], images={}), XRAY
    else:
        path, name = write("pneumonia", form, val_images=bomb), "val_images.npy"
    path.write_bytes(with_stated_size(path.read_bytes(), name, 1000))
    assert path.stat().st_size < MB
    line = cheap_failure("pneumonia")
    assert "truncated or damaged archive" in line and name in line


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_whose_output_cannot_be_bounded_are_refused(write, cheap_failure, method):
    path = write("pneumonia", "write_archive")
    path.write_bytes(zip_bytes([(XRAY, bytes(24 * MB))], method))
    path.write_bytes(with_stated_size(path.read_bytes(), XRAY, 1000))
    assert f"{XRAY}: found compression method {method}; allowed" in cheap_failure("pneumonia")


def test_more_images_than_any_copy_has_are_refused_before_one_is_decoded(
    write, failure, monkeypatch
):
    write("pneumonia", "write_archive")
    monkeypatch.setattr(pneumonia, "MOST_IMAGES", 16)
    monkeypatch.setattr(pneumonia, "_decode", lambda *_: pytest.fail("decoded"))
    assert "found 17 images; allowed: 16 at most" in failure("pneumonia")


def raw_header(**fields) -> bytes:
    info = tarfile.TarInfo("train/airplane/0000.jpg")
    for name, value in fields.items():
        setattr(info, name, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def sparse_header(size: int) -> bytes:
    """A member without any data that is `size` bytes of holes."""
    header = bytearray(raw_header(type=tarfile.GNUTYPE_SPARSE))
    header[483:495] = b"\x80" + size.to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def swelling(kind):
    """Of a member that is as large as it says, 48 MB of zeros."""
    return raw_header(name="README", type=kind, size=48 * MB)


LARGE = "train/airplane/0000.jpg: found 1099511627776 bytes"
TOO_MUCH = f"found more than {4 * MB} bytes when unpacked"


@pytest.mark.parametrize(
    ("header", "zeros", "words"),
    [
        (raw_header(size=1 << 40), 1, LARGE),
        (raw_header(size=-(1 << 40)), 1, ""),
        (sparse_header(1 << 40), 1, LARGE),
        (raw_header(size=1 << 40, type=tarfile.XHDTYPE), 1, ""),
        (raw_header(size=1 << 40, type=tarfile.GNUTYPE_LONGNAME), 1, ""),
        (swelling(tarfile.REGTYPE), 48, TOO_MUCH),
        (swelling(tarfile.XHDTYPE), 48, TOO_MUCH),
        (swelling(tarfile.GNUTYPE_LONGNAME), 48, TOO_MUCH),
    ],
)
def test_a_tar_file_is_read_up_to_its_limit_and_absurd_sizes_are_refused(
    write, cheap_failure, monkeypatch, header, zeros, words
):
    monkeypatch.setattr(cifar10, "LARGEST_TAR", 4 * MB)
    path = write("cifar10", "write_jpeg_tar")
    path.write_bytes(lzma.compress(header + bytes(zeros * MB), preset=0))
    line = cheap_failure("cifar10", 32 * MB)
    assert words in line and "cifar10_images.tar.xz" in line


def test_an_idx_file_is_unpacked_up_to_its_size(write, cheap_failure, root):
    write("mnist", "write_archives")
    path = root / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + bytes(48 * MB)))
    assert f"{path}: found another header or length" in cheap_failure("mnist")
    with path.with_suffix("").open("wb") as stream:
        stream.truncate(1 << 40)
    path.unlink()
    line = cheap_failure("mnist")
    assert "t10k-labels-idx1-ubyte: found another header or length" in line


def test_damaged_images_are_refused_or_read_and_nothing_else():
    random = np.random.default_rng(3)
    content = jpeg_bytes(random.integers(0, 256, (32, 32, 3), dtype=np.uint8))
    refused = 0
    for place in range(0, len(content), 2):
        damaged = bytearray(content)
        damaged[place] ^= int(random.integers(1, 256))
        for decode, entry in ((cifar10._decode, CIFAR10), (pneumonia._decode, PNEUMONIA)):
            try:
                assert decode("here", bytes(damaged), entry).dtype == np.uint8
            except InputError as error:
                assert str(error).startswith("here: found ")
                refused += 1
    assert refused > 25
