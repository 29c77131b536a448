"""Reader of CIFAR-100 with its 100 fine labels: the official archive, packed or not."""

from collections.abc import Sequence
from pathlib import Path

from dpatlas.data.cifar import Layout
from dpatlas.data.official import first_copy, folders
from dpatlas.data.registry import DataSet
from dpatlas.data.sources import Images, Source

LAYOUT = Layout("cifar-100-python", test="test", labels=b"fine_labels")


def locate(data_set: DataSet, places: Sequence[Path]) -> Source | None:
    """The best copy in `places` or in their sub-folders `cifar100`: packed before unpacked."""
    return first_copy(LAYOUT.marks(data_set), folders(places, data_set.name))


def read(source: Source, data_set: DataSet, classes: Sequence[str]) -> Images:
    """The images of `classes`, training and test split; InputError as `Layout.read`."""
    return LAYOUT.read(source, data_set, classes)
