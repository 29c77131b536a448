"""Prepared data sets on disk: `arrays.npz`, and beside it `manifest.json` with its checksum.

Training jobs read them through `load`, which needs numpy and nothing else.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.core.files import read_json, write_atomic, write_json
from dpatlas.errors import InputError

SCHEMA_VERSION = 1
ARRAYS, MANIFEST = "arrays.npz", "manifest.json"
NAMES = ("x_train", "y_train", "x_add", "y_add")


@dataclass(frozen=True)
class Prepared:
    """A prepared set and its manifest.

    x_train (n, d) float32 and y_train (n,) int64: the private records; labels count from 0 in the
    order of the manifest's `classes`. x_add (a, d), y_add (a,): records that may be added to make
    a neighbour, disjoint from the private ones.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_add: np.ndarray
    y_add: np.ndarray
    manifest: Mapping[str, Any]

    @property
    def sha256(self) -> str:
        """The digest of the arrays' content, for a run's record."""
        return self.manifest["sha256"]


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

    Each file appears by rename, the manifest last. Equal arrays give equal bytes. OSError (a full
    disk, a folder that cannot be written) leaves the files that were there.
    """
    if set(arrays) != set(NAMES):
        raise TypeError(f"arrays {sorted(arrays)} in place of {sorted(NAMES)}")
    manifest = {
        "schema_version": SCHEMA_VERSION,
        **description,
        "shapes": {name: list(array.shape) for name, array in arrays.items()},
        "dtypes": {name: str(array.dtype) for name, array in arrays.items()},
        "sha256": content_sha256(arrays),
    }
    buffer = io.BytesIO()
    # numpy gives every member the same date, so the bytes do not depend on the clock.
    np.savez(buffer, allow_pickle=False, **{name: arrays[name] for name in NAMES})
    folder = Path(folder)
    write_atomic(folder / ARRAYS, buffer.getvalue())
    write_json(folder / MANIFEST, manifest)
    return manifest


def load(folder: Path | str) -> Prepared:
    """Read a prepared set and check its content against the manifest.

    Raises InputError if a file is missing or damaged, or if arrays and manifest do not belong
    together.
    """
    folder = Path(folder)
    manifest = read_json(folder / MANIFEST)
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if version != SCHEMA_VERSION or "sha256" not in manifest:
        raise InputError(
            str(folder / MANIFEST), f"schema version {version}", f"a manifest of {SCHEMA_VERSION}"
        )
    path = folder / ARRAYS
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        raise InputError(str(path), "no such file", "the arrays of a prepared set") from None
    with stream:
        try:
            with np.load(stream, allow_pickle=False) as packed:
                arrays = {name: packed[name] for name in NAMES}
        # A damaged zip file can raise nearly anything, and every one of them means the same.
        except Exception:
            allowed = f"an npz file with {', '.join(NAMES)}"
            raise InputError(str(path), "a damaged file", allowed) from None
    found = content_sha256(arrays)
    if found != manifest["sha256"]:
        raise InputError(
            str(path),
            f"content with sha256 {found[:16]}",
            f"{manifest['sha256'][:16]} as in {MANIFEST}; delete the folder and prepare it again",
        )
    return Prepared(**arrays, manifest=manifest)
