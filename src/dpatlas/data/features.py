"""A frozen backbone's features of a data set, on disk: a .npy file per array, and a manifest.

Jobs map the arrays into memory, so that several share one copy. Labels lie beside them: a job that
trains on nothing else reads no image.
"""

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.files import remove_parts, replacing, write_json
from dpatlas.data.prepared import MANIFEST, Prepared, read_manifest
from dpatlas.errors import InputError

SCHEMA_VERSION = 1
PARTS = ("train", "validation", "test")
ARRAYS = tuple(f"{name}_{part}" for part in PARTS for name in ("x", "y"))


@dataclass(frozen=True)
class Features:
    """Features x (n, d) float32 and labels (n,) int64 of the three parts, and their manifest.

    The manifest holds id, data and backbone (id and sha256 of both), code_digest, versions, device,
    and shape, dtype and the file's sha256 of every array.
    """

    x: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]
    manifest: Mapping[str, Any]

    def identity(self) -> dict[str, str]:
        """Which features they were, for a record."""
        return {name: self.manifest[name] for name in ("id", "sha256", "device")}

    def check(self, what: str, digest: str) -> None:
        """InputError unless they were made of the data set, or by the backbone, of this sha256."""
        recorded = self.manifest[what]["sha256"]
        if recorded != digest:
            raise InputError(
                f"--features {self.manifest['id']}",
                f"features of {what} with sha256 {recorded[:16]}",
                f"{digest[:16]}, the job's; delete the folder and make them again",
            )

    def without_images(self, manifest: Mapping[str, Any]) -> Prepared:
        """The data set of this manifest with all its labels and no column of x."""
        arrays = {f"y_{part}": labels for part, labels in self.labels.items()}
        arrays["y_add"] = np.zeros(0, np.int64)
        arrays |= {f"x{name[1:]}": np.empty((len(y), 0), "f4") for name, y in arrays.items()}
        return Prepared(**arrays, manifest=manifest)


def save(
    folder: Path | str,
    x: Mapping[str, Iterable[np.ndarray]],
    labels: Mapping[str, np.ndarray],
    width: int,
    description: Mapping[str, Any],
) -> dict[str, Any]:
    """Write features, a part's rows chunk by chunk, and labels; returns the manifest.

    x: chunks (rows, width) by part; labels: (n,) by part. Each file appears by rename, the manifest
    last. OSError (a full disk, a folder that cannot be written) goes on to the caller.
    """
    folder, arrays = Path(folder), {}
    remove_parts(folder)
    for part in PARTS:
        y, shape = labels[part], (len(labels[part]), width)
        arrays[f"x_{part}"] = _write(folder / f"x_{part}.npy", x[part], shape, "float32")
        arrays[f"y_{part}"] = _write(folder / f"y_{part}.npy", [y], y.shape, "int64")
    manifest = {
        "schema_version": SCHEMA_VERSION,
        **description,
        "arrays": arrays,
        "sha256": sha256(canonical_json(arrays)),
    }
    write_json(folder / MANIFEST, manifest)
    return manifest


def load(folder: Path | str) -> Features:
    """Map features into memory, after their content was checked against the manifest.

    The arrays can be written to, which changes no file: torch takes no others without complaint.

    Raises InputError if a file is missing or damaged.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, SCHEMA_VERSION, ("arrays",))
    described = manifest["arrays"]
    if not isinstance(described, dict) or not set(ARRAYS) <= described.keys():
        found = "a manifest of another kind: its arrays are not those of features"
        raise InputError(str(folder / MANIFEST), found, f"arrays {', '.join(ARRAYS)}")
    arrays = {name: _map(folder, name, described[name]["sha256"]) for name in ARRAYS}
    x, labels = ({part: arrays[f"{name}_{part}"] for part in PARTS} for name in "xy")
    return Features(x, labels, manifest)


def _write(
    path: Path, chunks: Iterable[np.ndarray], shape: tuple[int, ...], dtype: str
) -> dict[str, Any]:
    """Shape, dtype and sha256 of the file.

    Written in order: on a full disk a file mapped for writing ends the process without a word.
    """
    header = io.BytesIO()
    layout = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, layout)
    digest, rows = hashlib.sha256(header.getvalue()), 0
    with replacing(path) as stream:
        stream.write(header.getvalue())
        for chunk in chunks:
            if chunk.shape[1:] != shape[1:] or chunk.dtype != dtype:
                raise TypeError(f"{chunk.dtype} {chunk.shape} in {path.name} of {dtype} {shape}")
            content = np.ascontiguousarray(chunk).data.cast("B")
            digest.update(content)
            stream.write(content)
            rows += len(chunk)
        if rows != shape[0]:
            raise TypeError(f"{rows} rows in {path.name} of shape {shape}")
    return {"shape": list(shape), "dtype": dtype, "sha256": digest.hexdigest()}


def _map(folder: Path, name: str, expected: str) -> np.ndarray:
    path, again = folder / f"{name}.npy", "delete the folder and make them again"
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", again) from None
    if found != expected:
        allowed = f"{expected[:16]} as in {MANIFEST}; {again}"
        raise InputError(str(path), f"a file with sha256 {found[:16]}", allowed)
    return np.load(path, mmap_mode="c", allow_pickle=False)
