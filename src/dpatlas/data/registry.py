"""The data sets the project knows, as data: what they are, where they come from, how to check them.

None is redistributed. To add a published one: an entry here and a reader in
`dpatlas.data.prepare.READERS`; a generated one: an entry here and in `dpatlas.data.generated`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dpatlas.data.generated import SOURCES
from dpatlas.errors import InputError


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


@dataclass(frozen=True)
class DataSet:
    """One data set.

    classes: in the order of the published labels.
    image_shape: (channels, height, width); a record is its pixels in this order.
    counts: split -> images per class, in the order of `classes`; empty if generated, and where
        only `totals` are published: split -> images.
    label_file: name of a list of images and labels that lies beside a copy and chooses from it.
    kind: `published`; `generated`: drawn on demand, as many records as one asks for; or `own`: a
        user's, as `dpatlas.data.own` makes an entry of its definition.
    accepts: what may lie under `data.root`, in words, for messages.
    by_hand: why a published set without `files` is not fetched, and where it is; for messages.
    unpacked_md5: member of the official archive -> md5, for a copy that is already unpacked.
    whole_by_default: whether it means all classes where none are chosen.
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
    by_hand: str = ""
    unpacked_md5: Mapping[str, str] = field(default_factory=dict)
    whole_by_default: bool = False
    totals: Mapping[str, int] = field(default_factory=dict)
    label_file: str = ""


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
            size=170_498_071,
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

FINE_LABELS = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house
kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table
tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
CIFAR100 = replace(
    CIFAR10,
    name="cifar100",
    what="60,000 colour photographs of 32 x 32 pixels in 100 classes, the fine labels",
    classes=tuple(FINE_LABELS.split()),
    counts={"train": (500,) * 100, "test": (100,) * 100},
    files=(
        RemoteFile(
            name="cifar-100-python.tar.gz",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            size=169_001_437,
        ),
    ),
    accepts=("cifar-100-python.tar.gz", "cifar-100-python/"),
    unpacked_md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
    whole_by_default=True,
)

# Of 96 x 96 pixels; scaled as networks take them that were trained on ImageNet.
STL10 = DataSet(
    name="stl10",
    what="13,000 labelled colour photographs of 96 x 96 pixels in ten classes, taken from ImageNet",
    classes=(
        "airplane",
        "bird",
        "car",
        "cat",
        "deer",
        "dog",
        "horse",
        "monkey",
        "ship",
        "truck",
    ),
    image_shape=(3, 96, 96),
    counts={"train": (500,) * 10, "test": (800,) * 10},
    scaling=Scaling(multiply=1, subtract=0, divide=255),
    licence="no licence stated; the authors ask for a citation of Coates, Lee and Ng (2011); the "
    "photographs are ImageNet's, under its terms",
    files=(
        RemoteFile(
            name="stl10_binary.tar.gz",
            md5="91f7769df0f17e558f3565bffb0c7dfb",
            address="http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            size=2_640_397_119,
        ),
    ),
    accepts=("stl10_binary.tar.gz", "stl10_binary/"),
    unpacked_md5={
        "train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
        "train_y.bin": "5a34089d4802c674881badbb80307741",
        "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
        "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
    },
)

# Those for backbones that were trained on CIFAR-10: its size and its scaling.
STL10_32 = replace(
    STL10,
    name="stl10-32",
    what="13,000 labelled colour photographs in ten classes, taken from ImageNet, averaged over "
    "blocks to 32 x 32 pixels",
    image_shape=CIFAR10.image_shape,
    scaling=CIFAR10.scaling,
)

MNIST_FILES = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = DataSet(
    name="mnist",
    what="70,000 handwritten digits of 28 x 28 grey levels",
    classes=tuple("0123456789"),
    image_shape=(1, 28, 28),
    counts={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    scaling=Scaling(multiply=1, subtract=0, divide=255),
    licence="no licence stated; LeCun, Cortes and Burges (1998), made from NIST's Special "
    "Databases 1 and 3",
    files=tuple(
        RemoteFile(name, md5, MNIST_FILES + name, size=size)
        for name, md5, size in (
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        )
    ),
    accepts=(
        "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte, each with or without .gz",
    ),
    unpacked_md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
)

PNEUMONIA = DataSet(
    name="pneumonia",
    what="5,856 chest X-rays of children, the central squares at 28 x 28 grey levels",
    classes=("normal", "pneumonia"),
    image_shape=(1, 28, 28),
    counts={"train": (1349, 3883), "test": (234, 390)},
    scaling=Scaling(multiply=1, subtract=0, divide=255),
    licence="Mendeley Data rscbjbr9sj version 2 (Kermany, Zhang and Goldbaum, 2018), CC BY 4.0; "
    "PneumoniaMNIST (Yang et al., 2023), CC BY 4.0",
    accepts=("ChestXRay2017.zip", "chest_xray/", "pneumoniamnist.npz"),
    by_hand="no checksum is published for the archive, so nothing is fetched: ChestXRay2017.zip is "
    "to be had from Mendeley Data, rscbjbr9sj version 2",
)

# The paper's three classes: the archive's folders know two, its file names tell the cause.
PNEUMONIA_CAUSES = replace(
    PNEUMONIA,
    name="pneumonia_causes",
    classes=("normal", "bacteria", "virus"),
    counts={"train": (1349, 2538, 1345), "test": (234, 242, 148)},
    accepts=("ChestXRay2017.zip", "chest_xray/"),
)

# Those three at the resolution that networks trained on ImageNet take.
PNEUMONIA_224 = replace(
    PNEUMONIA_CAUSES,
    name="pneumonia-224",
    what="5,856 chest X-rays of children, the central squares at 224 x 224 grey levels",
    image_shape=(1, 224, 224),
)

XRAY_LABELS = "chest_xray_labels.csv"


def _cleaned(entry: DataSet) -> DataSet:
    """The part of the X-rays that a list of images and labels chooses."""
    return replace(
        entry,
        name=f"{entry.name}-cleaned",
        what=entry.what.replace("5,856", "5,787") + f", those that {XRAY_LABELS} lists",
        # Of a cleaned list that others used; it is published without numbers per class.
        counts={},
        totals={"train": 5163, "test": 624},
        accepts=tuple(f"{each} with {XRAY_LABELS} beside it" for each in entry.accepts),
        by_hand=f"{entry.by_hand}; {XRAY_LABELS} has the columns file (a path in the archive) and "
        f"label ({', '.join(entry.classes)}) and is yours to bring",
        label_file=XRAY_LABELS,
    )


PNEUMONIA_CAUSES_CLEANED = _cleaned(PNEUMONIA_CAUSES)
PNEUMONIA_224_CLEANED = _cleaned(PNEUMONIA_224)

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


BLOCK_COUNTS = "8 x 8 block counts from 0 to 16"
LEVELS_OF_DIGITS = "8 x 8 levels from 0 to 16"


def _generated(
    name: str, what: str, form: str = BLOCK_COUNTS, scaling: Scaling = DIGITS.scaling
) -> DataSet:
    """An entry for a source of `dpatlas.data.generated`.

    scaling: that of the data that its backbones are meant for; features are taken of no other.
    """
    return DataSet(
        name=name,
        what=f"{what}; {form}, generated",
        classes=SOURCES[name].classes,
        image_shape=SOURCES[name].image_shape,
        counts={},
        scaling=scaling,
        licence="made by this project",
        kind="generated",
        whole_by_default=True,
    )


GENERATED = (
    _generated("strokes", "digits drawn with a pen along hand-made skeletons"),
    _generated("fonts", "digits in 16 free fonts"),
    _generated("letters", "36 letters in 16 free fonts"),
    _generated("inverted-letters", "36 letters in 16 free fonts, paper on ink"),
    _generated("scribbles", "random curves of 36 kinds"),
    _generated("digits-and-letters", "digits by pen and in 16 free fonts, and 36 letters"),
    _generated(
        "leaves",
        "an object before dead leaves, of 36 kinds",
        "32 x 32 pixels in colour",
        CIFAR10.scaling,
    ),
    _generated(
        "leaves-grey",
        "an object before dead leaves, of 36 kinds",
        "28 x 28 grey pixels",
        PNEUMONIA.scaling,
    ),
    _generated("leaves-8", "an object before dead leaves, of 12 kinds", LEVELS_OF_DIGITS),
    _generated(
        "styles",
        "what 36 untrained generators draw",
        "32 x 32 pixels in colour",
        CIFAR10.scaling,
    ),
    _generated("styles-8", "what 36 untrained generators draw", LEVELS_OF_DIGITS),
)

PUBLISHED = (
    DIGITS,
    CIFAR10,
    CIFAR100,
    STL10,
    STL10_32,
    MNIST,
    PNEUMONIA,
    PNEUMONIA_CAUSES,
    PNEUMONIA_224,
    PNEUMONIA_CAUSES_CLEANED,
    PNEUMONIA_224_CLEANED,
    BREAST_CANCER,
)
DATA_SETS = {data_set.name: data_set for data_set in (*PUBLISHED, *GENERATED)}


def find(name: str) -> DataSet:
    """The entry called `name`; InputError with the known names if there is none."""
    if name not in DATA_SETS:
        raise InputError("data set", repr(name), "one of " + ", ".join(DATA_SETS))
    return DATA_SETS[name]
