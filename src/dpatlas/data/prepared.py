"""Prepared data sets on disk: `arrays.npz`, and beside it `manifest.json` with its checksum.

Training jobs read them through `load`, which needs numpy and nothing else.
"""

import hashlib
import json
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.arrays import packed, read_arrays
from dpatlas.base.files import read_json, remove_parts, write_atomic, write_json
from dpatlas.base.guard import integer
from dpatlas.errors import InputError

SCHEMA_VERSION = 1
ARRAYS, MANIFEST = "arrays.npz", "manifest.json"
NAMES = ("x_train", "y_train", "x_add", "y_add")
HELD_OUT = ("test", "validation")
AGAIN = "delete the folder and prepare it again"


@dataclass(frozen=True)
class Prepared:
    """A prepared set and its manifest.

    x_train (n, d) float32 and y_train (n,) int64: the private records; labels count from 0 in the
    order of the manifest's `classes`. x_add (a, d), y_add (a,): records that may be added to make
    a neighbour. x_test, y_test and x_validation, y_validation: records held out, for the reported
    accuracy and for tuning; none unless they were asked for. No record is in two parts.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_add: np.ndarray
    y_add: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    manifest: Mapping[str, Any]

    @property
    def sha256(self) -> str:
        """The digest of the arrays' content, for a run's record."""
        return self.manifest["sha256"]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) behind the d numbers of a record."""
        return tuple(self.manifest["image_shape"])

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        return tuple(self.manifest["classes"])


def content_sha256(arrays: Mapping[str, np.ndarray]) -> str:
    """sha256 over name, dtype, shape and bytes of every array, in the order of the names.

    It covers what the arrays hold and not how a file packs them. Bytes are taken little-endian
    and in C order, so the digest is the same on every machine.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        header = json.dumps([name, array.dtype.str, array.shape])
        digest.update(f"{header}\n".encode())
        digest.update(array.data.cast("B") if array.size else b"")
    return digest.hexdigest()


def save(
    folder: Path | str, arrays: Mapping[str, np.ndarray], description: Mapping[str, Any]
) -> dict[str, Any]:
    """Write `arrays` (those of `Prepared`) and their manifest; returns the manifest.

    Held-out parts may be missing, and then have no share in the digest. Each file appears by
    rename, the manifest last. Equal arrays give equal bytes. OSError (a full disk, a folder that
    cannot be written) leaves the files that were there.
    """
    names = _stored_names(arrays)
    if set(arrays) != set(names):
        raise TypeError(f"arrays {sorted(arrays)} in place of {sorted(names)}")
    manifest = {
        "schema_version": SCHEMA_VERSION,
        **description,
        "shapes": {name: list(array.shape) for name, array in arrays.items()},
        "dtypes": {name: str(array.dtype) for name, array in arrays.items()},
        "sha256": content_sha256(arrays),
    }
    folder = Path(folder)
    remove_parts(folder)
    write_atomic(folder / ARRAYS, packed({name: arrays[name] for name in names}))
    write_json(folder / MANIFEST, manifest)
    return manifest


def read_manifest(folder: Path, version: int, needed: Collection[str] = ()) -> dict[str, Any]:
    """The manifest in a folder; InputError for a damaged one and for another schema version.

    And for one of another kind, which lacks some of the entries `needed`.
    """
    path = folder / MANIFEST
    manifest = read_json(path)
    found = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if found != version or "sha256" not in manifest:
        raise InputError(str(path), f"schema version {found}", f"a manifest of {version}")
    lacking = [name for name in needed if name not in manifest]
    if lacking:
        found = f"a manifest of another kind, without {', '.join(lacking)}"
        raise InputError(str(path), found, f"one with {', '.join(needed)}")
    return manifest


def load(folder: Path | str) -> Prepared:
    """Read a prepared set and check its content against the manifest.

    Raises InputError if a file is missing or damaged, if arrays and manifest do not belong
    together, or if a label is no position in the manifest's `classes`.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, SCHEMA_VERSION)
    path = folder / ARRAYS
    try:
        stored = read_arrays(path)
        arrays = {name: stored[name] for name in _stored_names(stored)}
    except FileNotFoundError:
        allowed = f"the arrays of a prepared set; {AGAIN}"
        raise InputError(str(path), "no such file", allowed) from None
    except (ValueError, KeyError):
        allowed = f"an npz file with {', '.join(NAMES)}; {AGAIN}"
        raise InputError(str(path), "a damaged file", allowed) from None
    digest = content_sha256(arrays)
    if digest != manifest["sha256"]:
        raise InputError(
            str(path),
            f"content with sha256 {digest[:16]}",
            f"{manifest['sha256'][:16]} as in {MANIFEST}; {AGAIN}",
        )
    classes = manifest.get("classes")
    allowed_labels = integer(ge=0, lt=len(classes) if classes else None)
    for name, array in arrays.items():
        if name.startswith("y_"):
            allowed_labels.check(f"{path}: {name}", array)
    for part in HELD_OUT:
        for name in (f"x_{part}", f"y_{part}"):
            arrays.setdefault(name, arrays[f"{name[0]}_train"][:0])
    return Prepared(**arrays, manifest=manifest)


def _stored_names(names: Container[str]) -> tuple[str, ...]:
    """`NAMES`, and both arrays of every held-out part of which `names` has one."""
    pairs = [(f"x_{part}", f"y_{part}") for part in HELD_OUT]
    return NAMES + tuple(name for pair in pairs if any(n in names for n in pair) for name in pair)
