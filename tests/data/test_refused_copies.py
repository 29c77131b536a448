"""Copies of published sets that are damaged, incomplete or of other content: one line each."""

import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest
from miniatures import (
    MNIST_NAMES,
    Cifar10,
    Cifar100,
    Mnist,
    Stl10,
    Xrays,
    batch_bytes,
    idx_bytes,
    npy_bytes,
    prepared,
    refusal,
)
from PIL import Image

MINIATURES = {"cifar100": Cifar100, "stl10": Stl10, "mnist": Mnist, "cifar10": Cifar10}
PHOTOGRAPH = "train/airplane/0004.jpg"
XRAY = "chest_xray/train/PNEUMONIA/person4_bacteria_5.jpeg"
IMAGES, *_, LABELS = MNIST_NAMES


def black(*shape, form="JPEG"):
    stream = io.BytesIO()
    Image.fromarray(np.zeros(shape, np.uint8)).save(stream, form)
    return stream.getvalue()


# What follows writes a copy with one fault: functions of a miniature and a folder.


def archive(**replaced):
    return lambda copy, root: copy.write_archive(root, **replaced)


def batch_of_cifar10(copy, root):
    data, labels = copy.batches["train"]
    batch = batch_bytes({b"data": data, b"labels": labels.tolist()})
    copy.write_archive(root, train=batch)


def damaged(form, damage):
    def write(copy, root):
        path = getattr(copy, form)(root)
        path.write_bytes(damage(path.read_bytes()))

    return write


def with_images(copy, root, images, extras=()):
    write = copy.write_jpeg_tar if isinstance(copy, Cifar10) else copy.write_archive
    write(root, images, extras=extras)


def image(name, content):
    return lambda copy, root: with_images(copy, root, copy.images() | {name: content})


def twice(copy, root):
    with_images(copy, root, None, [(f"./{PHOTOGRAPH}", copy.images()[PHOTOGRAPH])])


def without(name, *extras):
    def write(copy, root):
        images = copy.images()
        del images[name]
        with_images(copy, root, images, extras)

    return write


def node(kind):
    """A link or a device under the name of a photograph."""
    info = tarfile.TarInfo(PHOTOGRAPH)
    info.type, info.linkname = kind, "train/airplane/0003.jpg"
    return info


def linked():
    info = zipfile.ZipInfo("chest_xray/train/NORMAL/NORMAL2-IM-0000-0001.jpeg")
    info.external_attr = 0o120777 << 16
    return without(info.filename, (info, b"/etc/hostname"))


def other_folder(copy, root):
    copy.write_jpeg_folder(root)
    (root / "test/automobile").rename(root / "test/cars")


def npz(**changes):
    def write(copy, root):
        arrays = copy.arrays()
        copy.write_npz(root, **{name: change(arrays[name]) for name, change in changes.items()})

    return write


def other_bytes(name, packed):
    """Of the published shape."""

    def write(copy, root):
        copy.write_unpacked(root)
        content = bytearray(copy.contents[name])
        content[-1] ^= 1
        (root / name).write_bytes(content)
        if packed:
            (root / f"{name}.gz").write_bytes(gzip.compress(content))

    return write


def damaged_gzip(name, damage):
    def write(copy, root):
        copy.write_archives(root)
        (root / f"{name}.gz").write_bytes(damage(copy.archives[name]))

    return write


def as_published(change):
    """Images of another shape, whose checksum is the published one."""

    def write(copy, root):
        content = change(copy.splits["train"][0])
        copy.register(train_images_idx3_ubyte=content)
        copy.write_unpacked(root)
        (root / IMAGES).write_bytes(content)

    return write


def incomplete(copy, root):
    copy.write_archives(root)
    (root / "t10k-images-idx3-ubyte.gz").unlink()


LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE)
BATCHES = (
    b"\x80\x02",
    batch_bytes([1, 2]),
    batch_bytes({b"data": np.zeros((3, 3072), np.uint8)}),
    batch_bytes({b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 2]}),
    batch_bytes({b"data": np.zeros((2, 3072), np.int32), b"labels": [1, 2]}),
    batch_bytes({b"data": b"bytes", b"labels": [1, 2]}),
)
NO_ARCHIVES = (lambda whole: whole[:-100], lambda whole: b"<html>not found</html>", lambda _: b"")
# Whose copy, the fault, what the line has.
CASES = [
    *(("cifar10", archive(data_batch_5=batch), ["data_batch_5"]) for batch in BATCHES),
    ("cifar100", batch_of_cifar10, ["a batch of cifar100"]),
    ("stl10", archive(train_X=bytes(29 * 27648)), ["train_X.bin: found 801792 bytes"]),
    ("stl10", archive(train_y=bytes([0, 10] * 15)), ["train_y.bin: found labels from 0 to 10"]),
    ("stl10", archive(test_y=bytes([1, 11] * 10)), ["test_y.bin: found labels from 1 to 11"]),
    ("stl10", archive(train_y=b"", train_X=b""), ["found 0 train images of class monkey"]),
    ("cifar10", damaged("write_jpeg_tar", lambda whole: whole[:-200]), ["damaged archive"]),
    ("cifar10", image(PHOTOGRAPH, black(32, 32, 3)[:200]), [PHOTOGRAPH, "cannot be decoded"]),
    ("cifar10", image(PHOTOGRAPH, black(33, 32, 3)), [PHOTOGRAPH, "32 x 33 pixels"]),
    ("cifar10", image(PHOTOGRAPH, black(32, 32)), [PHOTOGRAPH, "1 channels"]),
    *(
        ("cifar10", image(PHOTOGRAPH, black(32, 32, 3, form=form)), [PHOTOGRAPH, "be decoded"])
        for form in ("PNG", "TIFF")
    ),
    ("cifar10", twice, [f"{PHOTOGRAPH}: found this image a second time"]),
    *(
        ("cifar10", without(PHOTOGRAPH, node(kind)), ["4 train images of class airplane", "5"])
        for kind in LINKS
    ),
    ("cifar10", without("test/automobile/0001.jpg"), ["1 test images of class automobile", "2 of"]),
    ("cifar10", other_folder, ["no folders test/automobile"]),
    ("pneumonia", image(XRAY, black(27, 40)), [XRAY, "40 x 27 pixels"]),
    ("pneumonia", image(XRAY, black(40, 27, 3)), [XRAY, "27 x 40 pixels"]),
    ("pneumonia", linked(), ["cannot be decoded"]),
    *(
        ("pneumonia", damaged(form, damage), [file, "truncated or damaged archive"])
        for form, file in (("archive", "ChestXRay2017.zip"), ("npz", "pneumoniamnist.npz"))
        for form in (f"write_{form}",)
        for damage in NO_ARCHIVES
    ),
    ("pneumonia", npz(test_images=lambda a: a[:, :27]), ["pneumoniamnist.npz", "(6, 27, 28)"]),
    ("pneumonia", npz(test_images=lambda a: a[:-1]), ["pneumoniamnist.npz", "(5, 28, 28)"]),
    ("pneumonia", npz(test_labels=lambda a: a[:, 0]), ["pneumoniamnist.npz", "uint8 (6,)"]),
    ("pneumonia", npz(test_labels=lambda a: a + np.uint8(1)), ["mnist.npz", "labels below 2"]),
    ("pneumonia", npz(test_images=lambda a: npy_bytes(a)[:-5]), ["test_images.npy: found a damag"]),
    ("pneumonia", npz(val_labels=lambda a: None), ["pneumoniamnist.npz", "no val_labels.npy"]),
    *(
        ("mnist", other_bytes(name, packed), [name + ".gz" * packed + ":", "md5"])
        for name in (IMAGES, LABELS)
        for packed in (True, False)
    ),
    *(
        ("mnist", damaged_gzip(name, damage), [f"{name}.gz", "truncated or damaged gzip file"])
        for name in (IMAGES, LABELS)
        for damage in (
            lambda whole: whole[:-10],
            lambda whole: whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],
        )
    ),
    *(
        ("mnist", as_published(change), [IMAGES, "another header or length", "33 x 28 x 28 bytes"])
        for change in (
            lambda images: idx_bytes(images.reshape(-1, 14, 56)),
            lambda images: idx_bytes(images[1:]),
            lambda images: idx_bytes(np.repeat(images, 2, axis=0)),
            lambda images: b"x" * 100,
        )
    ),
    ("mnist", incomplete, ["no copy of mnist", *MNIST_NAMES, " lacks t10k-images-idx3-ubyte"]),
]


@pytest.mark.parametrize(("name", "write", "words"), CASES)
def test_a_copy_with_a_fault_is_refused_by_its_place(monkeypatch, tmp_path, name, write, words):
    write(MINIATURES.get(name, Xrays)(monkeypatch), tmp_path)
    message = refusal(name, tmp_path)
    assert all(word in message for word in words)


@pytest.mark.parametrize(
    ("name", "file", "classes", "records"),
    [
        ("cifar10", PHOTOGRAPH, ["frog", "automobile"], 10),
        ("pneumonia_causes", XRAY, ["normal", "virus"], 7),
    ],
)
def test_images_of_classes_that_are_not_chosen_are_not_decoded(
    monkeypatch, tmp_path, name, file, classes, records
):
    image(file, b"no image")(MINIATURES.get(name, Xrays)(monkeypatch), tmp_path)
    assert len(prepared(name, tmp_path, classes=classes).y_train) == records


@pytest.mark.parametrize(
    ("name", "file", "records"),
    [
        ("cifar10", "train/airplane/0000.jpg", 10),
        ("pneumonia", "chest_xray/train/NORMAL/0000.jpeg", 11),
    ],
)
def test_names_that_leave_the_archive_or_are_no_images_are_ignored(
    monkeypatch, tmp_path, name, file, records
):
    *_, folder, base = file.split("/")
    names = [f"../{file}", f"/{file}", f"{file}.exe", f"{file}\n", file.replace("train", "val")]
    names += [file.replace(base, f"../{folder}/{base}"), file.replace(base, f"..\\{base}")]
    copy = MINIATURES.get(name, Xrays)(monkeypatch)
    with_images(copy, tmp_path, None, [(each, b"no image") for each in names])
    assert len(prepared(name, tmp_path).y_train) == records
