from dataclasses import asdict

import pytest

from dpatlas.data.registry import DATA_SETS, reader
from dpatlas.models.imagenet import PREPROCESSING

PUBLISHED = {name: entry for name, entry in DATA_SETS.items() if entry.kind == "published"}


@pytest.mark.parametrize("name", DATA_SETS)
def test_entries_are_consistent_and_have_a_reader_or_a_generator(name):
    entry = DATA_SETS[name]
    assert entry.name == name and bool(entry.drawn) != (name in PUBLISHED)
    assert all(len(counts) == len(entry.classes) for counts in entry.counts.values())
    assert all(len(file.md5) == 32 and file.address.endswith(file.name) for file in entry.files)
    if name in PUBLISHED:
        assert all(hasattr(reader(name), part) for part in ("locate", "read"))
        assert bool(entry.counts) != bool(entry.totals) == bool(entry.label_file)


def test_sizes_are_the_published_ones():
    # Of the training and the test split, where there are two.
    published = {
        "digits": (1797,),
        "mnist": (60_000, 10_000),
        **dict.fromkeys(("cifar10", "cifar100"), (50_000, 10_000)),
        **dict.fromkeys(("stl10", "stl10-32"), (5000, 8000)),
        "breast_cancer": (569,),
        **dict.fromkeys(("pneumonia", "pneumonia_causes", "pneumonia-224"), (5232, 624)),
        **dict.fromkeys(("pneumonia_causes-cleaned", "pneumonia-224-cleaned"), (5163, 624)),
    }
    found = {
        name: tuple(entry.totals.values()) or tuple(map(sum, entry.counts.values()))
        for name, entry in PUBLISHED.items()
    }
    assert published.items() <= found.items()


def test_photographs_are_scaled_as_networks_and_backbones_take_them():
    assert {**asdict(DATA_SETS["stl10"].scaling), "norm": None} == PREPROCESSING
    assert len({DATA_SETS[name].scaling for name in ("cifar10", "cifar100", "stl10-32")}) == 1
