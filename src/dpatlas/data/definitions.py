"""What a data set is: where it comes from, how it is checked and scaled, and what it allows."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dpatlas.errors import InputError

Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class RemoteFile:
    """A published file and its published checksums; one without any is never opened.

    md5: all 32 hex digits, or empty.
    sha256: its first hex digits, 8 or more, or empty.
    size: in bytes, for plans and messages; 0 where it is not known.
    """

    name: str
    md5: str
    address: str
    sha256: str = ""
    size: int = 0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"([0-9a-f]{32})?", self.md5) or not re.fullmatch(
            r"([0-9a-f]{8,64})?", self.sha256
        ):
            found = f"md5 {self.md5!r} and sha256 {self.sha256!r}"
            raise InputError(self.name, found, "32 hex digits and at least 8, each or none")
        if not (self.md5 or self.sha256):
            raise InputError(self.name, "no checksum", "a published md5 or sha256")


@dataclass(frozen=True)
class Scaling:
    """From a grey level u to (multiply u - subtract) / divide: public constants, whole numbers.

    Whole numbers keep the result, norms included, the same to the last bit on every machine.
    """

    multiply: int
    subtract: int
    divide: int


def scale(pixels: np.ndarray, scaling: Scaling, norm: float | None) -> np.ndarray:
    """Records (n, d) float32 from grey levels (n, d) uint8.

    x = (multiply u - subtract) / divide; then, with `norm`, x <- norm x / ||x||, record by record.
    Raises InputError for a record that is zero and so has no direction.
    """
    whole = scaling.multiply * pixels.astype(np.int16) - np.int16(scaling.subtract)
    if norm is None:
        return np.divide(whole, scaling.divide, dtype=np.float32)
    # Squares of whole numbers add up exactly in any order.
    lengths = np.sqrt(np.einsum("ij,ij->i", whole, whole, dtype=np.int64).astype(np.float64))
    if not lengths.all():
        raise InputError("norm", "a record of zeros", "null for images that may be all zero")
    return np.multiply(whole, (norm / lengths).astype(np.float32)[:, None], dtype=np.float32)


@dataclass(frozen=True)
class DataSet:
    """One data set.

    classes: in the order of the published labels.
    image_shape: (channels, height, width); a record is its pixels in this order.
    counts: split -> images per class, in the order of `classes`; empty if generated, and where
        only `totals` are published: split -> images.
    label_file: name of a list of images and labels that lies beside a copy and chooses from it.
    version: which edition the official files are.
    kind: `published`; `generated`: drawn on demand, as many records as one asks for; or `own`: a
        user's, as `dpatlas.data.own` makes an entry of its definition.
    accepts: what may lie under `data.root`, in words, for messages.
    by_hand: why a published set without `files` is not fetched, and where it is; for messages.
    unpacked_md5: member of the official archive -> md5, for a copy that is already unpacked.
    whole_by_default: whether it means all classes where none are chosen.
    only_public: whether it is for pre-training alone: no config names it as private records.
    pretraining: whether a config may name it as images to pre-train on.
    half: (name, h) of the half h, 0 or 1, of another set's training images.
    drawn: how the images of a generated set are drawn.
    """

    name: str
    what: str
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    counts: Mapping[str, tuple[int, ...]]
    scaling: Scaling
    licence: str
    kind: str = "published"
    version: str = ""
    files: tuple[RemoteFile, ...] = ()
    accepts: tuple[str, ...] = ()
    by_hand: str = ""
    unpacked_md5: Mapping[str, str] = field(default_factory=dict)
    whole_by_default: bool = False
    totals: Mapping[str, int] = field(default_factory=dict)
    label_file: str = ""
    only_public: bool = False
    pretraining: bool = False
    half: tuple[str, int] | None = None
    drawn: "Drawn | None" = None

    def shares_images(self, other: "DataSet") -> bool:
        """Whether a training image may be one of the other set's."""
        (one, half), (another, other_half) = (
            each.half or (each.name, None) for each in (self, other)
        )
        return one == another and (None in (half, other_half) or half == other_half)


@dataclass(frozen=True)
class Drawn:
    """How a generated set is drawn: its classes, and the function that draws their images.

    draw: (generator, labels (n,)) -> images (n, pixels) uint8.
    looked_up: what its author took from real images, in words, for the ledgers of those who train
        on it.
    image_shape: (channels, height, width) of the pixels.
    """

    classes: tuple[str, ...]
    draw: Draw
    looked_up: str = "nothing"
    image_shape: tuple[int, int, int] = (1, 8, 8)
