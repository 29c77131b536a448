"""Sizes of data sets, as plans and schedulers need them before any data are read."""

import math
from collections.abc import Mapping
from typing import Any

from dpatlas.core.facts import DataFields
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError

# Numbers of a record, by data set.
INPUTS = {name: math.prod(data_set.image_shape) for name, data_set in DATA_SETS.items()}
# Records of sets whose parts all come from one pile.
RECORDS = {
    name: sum(data_set.counts["train"])
    for name, data_set in DATA_SETS.items()
    if set(data_set.counts) == {"train"}
}
# The two classes of digits that kl_privacy compares hold up to so many records between them.
TWO_DIGITS = 366
PARTS = ("n_train", "n_add", "n_test", "n_validation")
# Features of a record: bounds over all backbones, most of which have fewer than an image numbers.
LEAST_FEATURES, MOST_FEATURES = 256, 4096


def size_of(data: DataFields) -> tuple[int, int, int]:
    """Training records, records to add, and inputs of a data set."""
    n_train = data.n_train or 0
    n_add = max(0, TWO_DIGITS - n_train) if data.n_add is None else data.n_add
    return n_train, n_add, inputs_of(data)


def inputs_of(data: DataFields) -> int:
    """Numbers of a record; a user's own set says it by its definition, `own`."""
    return math.prod(data.own.image_shape) if data.own else INPUTS[data.name]


def records_of(data: DataFields) -> int:
    """Records of all parts that have a number."""
    return sum(getattr(data, part) or 0 for part in PARTS)


def array_mb(data: DataFields) -> float:
    """All parts of a prepared set as float32, in MB."""
    return records_of(data) * inputs_of(data) * 4 / 2**20


def features_mb(data: DataFields) -> float:
    """At most so many MB are a backbone's features of all parts: no more numbers than the images',
    but for the smallest.
    """
    width = min(max(inputs_of(data), LEAST_FEATURES), MOST_FEATURES)
    return array_mb(data) * width / inputs_of(data)


def check_records(place: str, data: Mapping[str, Any]) -> None:
    """InputError, naming the config key `place`, for more records than the data set has."""
    wanted = sum(data.get(part) or 0 for part in PARTS)
    available = RECORDS.get(data["name"], wanted)
    if wanted > available:
        allowed = f"at most {available} in all, the records of {data['name']}"
        raise InputError(place, f"{wanted} records", allowed)
