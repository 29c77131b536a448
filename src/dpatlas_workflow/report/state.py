"""Whether files and code are as they were made: what was recorded beside what is there."""

import functools
from collections.abc import Collection, Mapping
from pathlib import Path

from dpatlas.base.canonical import sha256
from dpatlas.base.digest import code_digest
from dpatlas.errors import InputError

RERUN = "a complete run: run snakemake again with the same --configfile"
# Snakemake takes a file that is newer than what it was made from as it is.
REMAKE = "the file as it was made: delete it and run snakemake again with the same --configfile"


def file_sha256(path: Path | str) -> str:
    """Hex sha256 of a file's bytes."""
    return sha256(Path(path).read_bytes())


def sha256_now(path: Path) -> str | None:
    """Hex sha256 of a file's bytes, None if it is gone."""
    return file_sha256(path) if path.is_file() else None


def as_made(recorded: str | None, now: str | None) -> bool | None:
    """Whether a digest of today is the recorded one; None where nothing was recorded."""
    return None if recorded is None else now == recorded


def file_differences(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """A line for every file below `folder` that is missing or has not the recorded sha256."""
    states = {path: sha256_now(folder / path) for path in sorted(recorded)}
    return [
        f"{path}: missing"
        if now is None
        else f"{path}: sha256 {now[:16]} in place of {recorded[path][:16]}"
        for path, now in states.items()
        if now != recorded[path]
    ]


def require_as_made(
    folder: Path, recorded: Mapping[str, str], recorded_in: str, allowed: str | None = None
) -> None:
    """InputError for the first of these files below `folder` that is missing or was changed."""
    for path in sorted(recorded):
        now = sha256_now(folder / path)
        if now is None:
            raise InputError(str(folder / path), "no such file", allowed or RERUN)
        if now != recorded[path]:
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
