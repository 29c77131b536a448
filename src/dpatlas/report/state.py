"""Whether files, records and code are as they were made: what was recorded beside what is there."""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpatlas.core.canonical import sha256
from dpatlas.core.digest import code_digest
from dpatlas.errors import InputError

RERUN = "a complete run: run snakemake again with the same --configfile"
# Snakemake takes a file that is newer than what it was made from as it is.
REMAKE = "the file as it was made: delete it and run snakemake again with the same --configfile"


@dataclass(frozen=True)
class State:
    """Digest that was recorded, None if nothing tells; digest of today, None if it is gone."""

    recorded: str | None
    now: str | None

    @property
    def as_made(self) -> bool | None:
        """Whether both are the same; None where nothing was recorded."""
        return None if self.recorded is None else self.now == self.recorded


def file_sha256(path: Path | str) -> str:
    """Hex sha256 of a file's bytes."""
    return sha256(Path(path).read_bytes())


def file_state(path: Path, recorded: str | None) -> State:
    """State of a file of which this sha256 was recorded."""
    return State(recorded, file_sha256(path) if path.is_file() else None)


def file_states(folder: Path, recorded: Mapping[str, str]) -> dict[str, State]:
    """States of files by their paths from `folder`, sorted by path."""
    return {path: file_state(folder / path, recorded[path]) for path in sorted(recorded)}


def file_differences(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """A line for every file below `folder` that is missing or has not the recorded sha256."""
    return [
        f"{path}: missing"
        if state.now is None
        else f"{path}: sha256 {state.now[:16]} in place of {recorded[path][:16]}"
        for path, state in file_states(folder, recorded).items()
        if not state.as_made
    ]


def files_of(lineage: Mapping[str, Any]) -> dict[str, str]:
    """sha256 by path from the tier's folder: outputs of a product, and records behind it."""
    outputs = {f"{lineage['kind']}s/{name}": sha for name, sha in lineage["outputs"].items()}
    return outputs | {entry["path"]: entry["sha256"] for entry in lineage["records"].values()}


def require_as_made(
    folder: Path, recorded: Mapping[str, str], recorded_in: str, allowed: str | None = None
) -> None:
    """InputError for the first of these files below `folder` that is missing or was changed."""
    for path, state in file_states(folder, recorded).items():
        if state.now is None:
            raise InputError(str(folder / path), "no such file", allowed or RERUN)
        if not state.as_made:
            changed = f"other content than {recorded_in} says"
            raise InputError(str(folder / path), changed, allowed or REMAKE)


def unnamed(folder: Path, names: Collection[str]) -> list[str]:
    """Whatever lies below `folder` beside these files (paths from it) and the folders they are in.

    Sorted; of an unnamed folder its files, or itself if it is empty.
    """
    below = {path.relative_to(folder): path for path in folder.rglob("*")}
    named = {Path(name) for name in names}
    parents = {parent for path in [*below, *named] for parent in path.parents}
    return sorted(path.as_posix() for path in below if path not in named | parents)


@functools.cache
def digest_now(module: str) -> str | None:
    """Code digest of `module` as it is on disk, or None if it is gone."""
    try:
        return code_digest(module)
    except InputError:
        return None


def code_state(module: str, recorded: str | None) -> State:
    """State of the code of a module, with this digest when it ran."""
    return State(recorded, digest_now(module))
