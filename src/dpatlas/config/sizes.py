"""Sizes of data sets, as plans and schedulers need them before any data are read."""

import math
from collections.abc import Mapping
from typing import Any

from dpatlas.errors import InputError

# Numbers of a record. A test compares them with the registry of data sets.
INPUTS = {
    "digits": 64,
    "strokes": 64,
    "fonts": 64,
    "letters": 64,
    "inverted-letters": 64,
    "scribbles": 64,
    "digits-and-letters": 64,
    "leaves-8": 64,
    "styles-8": 64,
    "breast_cancer": 30,
    "mnist": 784,
    "pneumonia": 784,
    "pneumonia_causes": 784,
    "pneumonia-224": 50176,
    "pneumonia_causes-cleaned": 784,
    "pneumonia-224-cleaned": 50176,
    "leaves-grey": 784,
    "leaves": 3072,
    "styles": 3072,
    "cifar10": 3072,
    "cifar100": 3072,
    "stl10": 27648,
    "stl10-32": 3072,
}
# Records of sets whose parts all come from one pile.
RECORDS = {"digits": 1797, "breast_cancer": 569}
# The two classes of digits that kl_privacy compares hold up to so many records between them.
TWO_DIGITS = 366
PARTS = ("n_train", "n_add", "n_test", "n_validation")
# Features of a record: bounds over all backbones, most of which have fewer than an image numbers.
LEAST_FEATURES, MOST_FEATURES = 256, 4096


def size_of(data: Mapping[str, Any]) -> tuple[int, int, int]:
    """Training records, records to add, and inputs of a data block."""
    n_add = data.get("n_add")
    if n_add is None:
        n_add = max(0, TWO_DIGITS - data["n_train"])
    return data["n_train"], n_add, inputs_of(data)


def inputs_of(data: Mapping[str, Any]) -> int:
    """Numbers of a record of a data block; a user's own set says it by its definition, `own`."""
    return math.prod(data["own"]["image_shape"]) if "own" in data else INPUTS[data["name"]]


def records_of(data: Mapping[str, Any]) -> int:
    """Records of all parts that a data block gives a number of."""
    return sum(data.get(part) or 0 for part in PARTS)


def array_mb(data: Mapping[str, Any]) -> float:
    """All parts of a prepared set as float32, in MB."""
    return records_of(data) * inputs_of(data) * 4 / 2**20


def features_mb(data: Mapping[str, Any]) -> float:
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
