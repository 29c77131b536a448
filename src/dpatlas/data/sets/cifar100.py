"""Reader of CIFAR-100 with its 100 fine labels: the official archive, packed or not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dpatlas.data.cifar import Layout
from dpatlas.data.definitions import DataSet, RemoteFile
from dpatlas.data.official import first_copy, folders
from dpatlas.data.sets.cifar10 import CIFAR10
from dpatlas.data.sources import Images, Source

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
    only_public=True,
)
SETS = (CIFAR100,)


LAYOUT = Layout("cifar-100-python", test="test", labels=b"fine_labels")


def locate(data_set: DataSet, searched: Sequence[Path]) -> Source | None:
    """The best copy in `searched` or in their sub-folders `cifar100`: packed before unpacked."""
    return first_copy(LAYOUT.marks(data_set), folders(searched, data_set.name))


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`, training and test split; InputError as `Layout.read`."""
    return LAYOUT.read(source, data_set, classes)
