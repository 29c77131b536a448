"""Prepared data sets for trainings: by name or manifest, or read from a folder of images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.digest import code_digest
from dpatlas.base.facts import OwnSet
from dpatlas.data import own
from dpatlas.data.definitions import scale
from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import MANIFEST, Prepared, load
from dpatlas.data.registry import find, module_of
from dpatlas.errors import InputError

# Numbers of records in the parts of a named data set: private, to add, test and validation.
SPLITS: Mapping[str, Mapping[str, int]] = {
    "digits": {"n_train": 1200, "n_add": 0, "n_test": 297, "n_validation": 300},
    "cifar10": {"n_train": 45000, "n_add": 0, "n_test": 10000, "n_validation": 5000},
}


def prepared_set(data: str, base: Path, output: Path, **sources: Any) -> Prepared:
    """The data set that the settings name; one of `SPLITS` is prepared in `output` if need be.

    sources: `data_root` and `allow_download` of `dpatlas.data.prepare.prepare`.
    """
    if data not in SPLITS:
        return load((base / data).parent)
    split = {"classes": list(find(data).classes), **SPLITS[data]}
    code = code_digest("dpatlas.data.prepare", module_of(data))
    folder = output / "data" / f"{data}-{sha256(canonical_json([split, code]))[:8]}"
    if not (folder / MANIFEST).is_file():
        prepare(data, split, folder, **sources)
    return load(folder)


def images_in(folder: Path, images: OwnSet) -> Prepared:
    """The images of a folder, of train and test; InputError as `dpatlas.data.own.read` raises."""
    data_set, source = own.define("images", images.whole()), own.locate(str(folder))
    if source is None:
        raise InputError("data", f"{folder}: no folder", "one with a sub-folder for each class")
    found = own.read(source, data_set, data_set.classes)
    none = np.zeros((0, np.prod(data_set.image_shape)), np.uint8), np.zeros(0, np.int64)
    parts: dict[str, np.ndarray] = {}
    for part in ("train", "add", "test", "validation"):
        pixels, parts[f"y_{part}"] = found.splits.get(part, none)
        parts[f"x_{part}"] = scale(pixels, data_set.scaling, None)
    return Prepared(**parts, manifest=images.whole())
