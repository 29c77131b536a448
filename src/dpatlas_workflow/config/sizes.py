"""Sizes of data sets, as plans and schedulers need them before any data are read."""

import math
from collections.abc import Mapping
from typing import Any

from dpatlas.base.facts import DataFields
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError

# Dimension of a record, by data set.
INPUTS = {name: math.prod(data_set.image_shape) for name, data_set in DATA_SETS.items()}
# Numbers of records of the sets whose parts are all drawn from one pool.
RECORDS = {
    name: sum(data_set.counts["train"])
    for name, data_set in DATA_SETS.items()
    if set(data_set.counts) == {"train"}
}
# Upper bound on the records of two classes of digits together, as kl_privacy compares them.
TWO_DIGITS = 366
PARTS = ("n_train", "n_add", "n_test", "n_validation")
# Bounds on the number of features that any backbone has.
LEAST_FEATURES, MOST_FEATURES = 256, 4096


def records_of_steps(data: DataFields) -> int:
    """Number of records that a step may use: those of training, and those to add."""
    n_train = data.n_train or 0
    return n_train + (max(0, TWO_DIGITS - n_train) if data.n_add is None else data.n_add)


def draws_records(data: DataFields) -> bool:
    """Whether every run draws records of its own of a generated set."""
    return data.redeal and not data.own and DATA_SETS[data.name].kind == "generated"


def inputs_of(data: DataFields) -> int:
    """Dimension of a record; of a user's own set, by its definition `own`."""
    return math.prod(data.own.image_shape) if data.own else INPUTS[data.name]


def records_of(data: DataFields) -> int:
    """Number of records of all parts whose number is given."""
    return sum(getattr(data, part) or 0 for part in PARTS)


def array_mb(data: DataFields) -> float:
    """All parts of a prepared set as float32, in MB."""
    return records_of(data) * inputs_of(data) * 4 / 2**20


def features_mb(data: DataFields) -> float:
    """Upper bound in MB on a backbone's features of all parts.

    There are no more features than pixels, except for the smallest images.
    """
    width = min(max(inputs_of(data), LEAST_FEATURES), MOST_FEATURES)
    return array_mb(data) * width / inputs_of(data)


def check_records(place: str, data: Mapping[str, Any]) -> None:
    """InputError, naming the config key `place`, for more records than the data set has."""
    requested = sum(data.get(part) or 0 for part in PARTS)
    available = RECORDS.get(data["name"], requested)
    if requested > available:
        allowed = f"at most {available} in all, the records of {data['name']}"
        raise InputError(place, f"{requested} records", allowed)
