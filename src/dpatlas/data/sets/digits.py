"""Reader of the digits that scikit-learn ships."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpatlas.data.definitions import DataSet, Scaling
from dpatlas.data.official import by_class
from dpatlas.data.prepared import content_sha256
from dpatlas.data.sources import Images, Source

DIGITS = DataSet(
    name="digits",
    what="1,797 handwritten digits, 8 x 8 block counts from 0 to 16, shipped with scikit-learn",
    classes=tuple("0123456789"),
    image_shape=(1, 8, 8),
    counts={"train": (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)},
    scaling=Scaling(multiply=1, subtract=0, divide=16),
    licence="UCI Optical Recognition of Handwritten Digits, test part (Alpaydin and Kaynak, 1998), "
    "CC BY 4.0",
)
SETS = (DIGITS,)


def locate(data_set: DataSet, folders: Sequence[Path]) -> Source:
    """The installed package; `folders` are not searched."""
    return Source("sklearn load_digits")


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`; the checksum covers all 1,797 images and labels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels, targets = bunch.data.astype(np.uint8), bunch.target.astype(np.uint8)
    checksum = content_sha256({"pixels": pixels, "targets": targets})
    split = by_class(pixels, targets, [data_set.classes.index(name) for name in classes])
    return Images({"train": split}, f"sha256:{checksum}")
