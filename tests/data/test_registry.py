import pytest

from dpatlas.data.registry import DATA_SETS, reader

PUBLISHED = {name: entry for name, entry in DATA_SETS.items() if entry.kind == "published"}


def test_every_data_set_has_a_reader_or_a_generator():
    assert all(hasattr(reader(name), part) for name in PUBLISHED for part in ("locate", "read"))
    assert {name for name, entry in DATA_SETS.items() if entry.drawn} == set(DATA_SETS) - set(
        PUBLISHED
    )


@pytest.mark.parametrize("entry", DATA_SETS.values(), ids=list(DATA_SETS))
def test_entries_are_consistent(entry):
    assert entry.name == {name for name, other in DATA_SETS.items() if other is entry}.pop()
    assert all(len(counts) == len(entry.classes) for counts in entry.counts.values())
    assert all(len(file.md5) == 32 and file.address.endswith(file.name) for file in entry.files)


def test_counts_per_class_or_totals_are_known_of_every_published_set():
    for entry in PUBLISHED.values():
        assert bool(entry.counts) != bool(entry.totals)
        assert bool(entry.totals) == bool(entry.label_file)


def test_sizes_are_the_published_ones():
    totals = {
        name: sum(map(sum, entry.counts.values())) or sum(entry.totals.values())
        for name, entry in PUBLISHED.items()
    }
    published = {
        "digits": 1797,
        "mnist": 70_000,
        "cifar10": 60_000,
        "cifar100": 60_000,
        "stl10": 13_000,
        "stl10-32": 13_000,
        "breast_cancer": 569,
        "pneumonia": 5856,
        "pneumonia_causes": 5856,
        "pneumonia-224": 5856,
        "pneumonia_causes-cleaned": 5787,
        "pneumonia-224-cleaned": 5787,
    }
    assert published.items() <= totals.items()
