"""The data sets the project knows, as data: what they are, where they come from, how to check them.

None is redistributed. To add a published one: an entry here and a reader in
`dpatlas.data.prepare.READERS`; a generated one: an entry here and in `dpatlas.data.generated`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpatlas.data.generated import SOURCES
from dpatlas.errors import InputError


@dataclass(frozen=True)
class RemoteFile:
    """A published file; `md5` is the published one, and a file without it is never opened."""

    name: str
    md5: str
    address: str


@dataclass(frozen=True)
class Scaling:
    """From a grey level u to (multiply u - subtract) / divide: public constants, whole numbers.

    Whole numbers keep the result, norms included, the same to the last bit on every machine.
    """

    multiply: int
    subtract: int
    divide: int


@dataclass(frozen=True)
class DataSet:
    """One data set.

    classes: in the order of the published labels.
    image_shape: (channels, height, width); a record is its pixels in this order.
    counts: split -> images per class, in the order of `classes`; empty if generated.
    kind: `published`, or `generated`: drawn on demand, as many records as one asks for.
    accepts: what may lie under `data.root`, in words, for messages.
    unpacked_md5: member of the official archive -> md5, for a copy that is already unpacked.
    """

    name: str
    what: str
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    counts: Mapping[str, tuple[int, ...]]
    scaling: Scaling
    licence: str
    kind: str = "published"
    files: tuple[RemoteFile, ...] = ()
    accepts: tuple[str, ...] = ()
    unpacked_md5: Mapping[str, str] = field(default_factory=dict)


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

CIFAR10 = DataSet(
    name="cifar10",
    what="60,000 colour photographs of 32 x 32 pixels in ten classes",
    classes=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    image_shape=(3, 32, 32),
    counts={"train": (5000,) * 10, "test": (1000,) * 10},
    scaling=Scaling(multiply=2, subtract=255, divide=255),
    licence="no licence stated; the authors ask for a citation of Krizhevsky (2009)",
    files=(
        RemoteFile(
            name="cifar-10-python.tar.gz",
            md5="c58f30108f718f92721af3b95e74349a",
            address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        ),
    ),
    accepts=(
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py/",
        "cifar10_images.tar.xz",
        "train/CLASS/NNNN.jpg with test/CLASS/NNNN.jpg",
    ),
    unpacked_md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
)

BREAST_CANCER = DataSet(
    name="breast_cancer",
    what="569 breast masses, 30 columns of numbers computed from images of cell nuclei, each as a "
    "share of a public limit in steps of 1/255; shipped with scikit-learn",
    classes=("malignant", "benign"),
    # Not an image: the ten measures as mean, standard error and worst, one after the other.
    image_shape=(1, 5, 6),
    counts={"train": (212, 357)},
    scaling=Scaling(multiply=2, subtract=255, divide=255),
    licence="UCI Breast Cancer Wisconsin (Diagnostic) (Wolberg et al., 1993), CC BY 4.0",
)


def _generated(name: str, what: str) -> DataSet:
    """An entry for a source of `dpatlas.data.generated`: the digits' shape and scaling."""
    return DataSet(
        name=name,
        what=f"{what}; 8 x 8 block counts from 0 to 16, generated",
        classes=SOURCES[name].classes,
        image_shape=DIGITS.image_shape,
        counts={},
        scaling=DIGITS.scaling,
        licence="made by this project",
        kind="generated",
    )


GENERATED = (
    _generated("strokes", "digits drawn with a pen along hand-made skeletons"),
    _generated("fonts", "digits in 16 free fonts"),
    _generated("letters", "36 letters in 16 free fonts"),
    _generated("inverted-letters", "36 letters in 16 free fonts, paper on ink"),
    _generated("scribbles", "random curves of 36 kinds"),
    _generated("digits-and-letters", "digits by pen and in 16 free fonts, and 36 letters"),
)

DATA_SETS = {data_set.name: data_set for data_set in (DIGITS, CIFAR10, BREAST_CANCER, *GENERATED)}


def find(name: str) -> DataSet:
    """The entry called `name`; InputError with the known names if there is none."""
    if name not in DATA_SETS:
        raise InputError("data set", repr(name), "one of " + ", ".join(DATA_SETS))
    return DATA_SETS[name]
