"""Checkpoints: arrays on disk that only their own run, with its own code, will accept."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.arrays import packed, read_arrays
from dpatlas.base.canonical import canonical_json
from dpatlas.base.files import write_atomic


class Checkpoints:
    """A folder of checkpoints for one job.

    `identity` names the job's spec digest, code digest, data checksum and device. A checkpoint with
    another identity, or one that is torn, is ignored as a whole. Checkpoints hold the secret of the
    noise and results that are not released, so only their owner can read folder and files.
    """

    def __init__(self, folder: Path | str, identity: dict[str, Any]):
        self.folder = Path(folder)
        self.identity = canonical_json(identity)

    def save(self, name: str, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Replace checkpoint `name` by these arrays and JSON-able facts, in one rename."""
        header = canonical_json(
            {"identity": self.identity, "arrays": sorted(arrays), "facts": facts}
        )
        head = np.frombuffer(header.encode(), dtype=np.uint8)
        content = packed({"__header__": head, **arrays})
        try:
            self._write(name, content)
        except FileNotFoundError:
            # Another attempt, which outlived its Snakemake, has finished and cleared the folder.
            self._write(name, content)

    def load(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Arrays and facts of checkpoint `name`, or None if there is none to trust."""
        try:
            arrays = read_arrays(self._path(name))
            header = json.loads(arrays.pop("__header__").tobytes())
            # A damaged directory of the file can lose arrays without an error.
            complete = header["arrays"] == sorted(arrays)
            trusted = complete and header["identity"] == self.identity
        except (OSError, ValueError, KeyError, TypeError):
            # TypeError: a header that is JSON, but no object.
            return None
        return (arrays, header["facts"]) if trusted else None

    def trusted(self) -> list[str]:
        """Names of the checkpoints that `load` accepts."""
        names = sorted(path.stem for path in self.folder.glob("*.npz"))
        return [name for name in names if self.load(name) is not None]

    def drop(self, name: str) -> None:
        """Remove checkpoint `name` if it is there."""
        self._path(name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the folder once the record is written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, name: str, content: bytes) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self._path(name), content, private=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npz"
