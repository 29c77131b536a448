"""Files that are either whole or absent."""

import contextlib
import csv
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dpatlas.errors import InputError

# Ends the names of files that are being written.
PART = ".part"


@contextlib.contextmanager
def replacing(path: Path | str, *, private: bool = False) -> Iterator[BinaryIO]:
    """A stream to a temporary file in the same folder, which becomes `path` at the end, by rename.

    A reader sees the old file or the new one. `private`: only the owner can read it, at any time,
    whatever the umask; else those whom the umask allows. On any error the temporary file is removed
    and the error goes on to the caller; OSError, for a full disk say, names `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files of mode 0600.
        if not private:
            Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        if isinstance(error, OSError) and error.filename in (None, temporary):
            error.filename, error.filename2 = str(path), None
        raise


@contextlib.contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """An empty folder that takes the place of `target` at the end, unless something goes wrong."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as temporary:
        fresh, old = Path(temporary) / "fresh", Path(temporary) / "old"
        fresh.mkdir()
        yield fresh
        # Folders cannot be exchanged in one call everywhere: if the second rename fails, go back.
        if target.exists():
            target.rename(old)
        try:
            fresh.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            raise


@contextlib.contextmanager
def only_process(output: Path, name: str) -> Iterator[None]:
    """Lock the training `name` in the folder `output`; InputError where another process has it.

    The lock is an empty file, which stays. On file systems without locks nothing is checked.
    """
    folder = output / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = f"another process that trains {name}"
            raise InputError(str(output), found, "one at a time in a folder") from None
        except OSError:
            pass
        yield


def remove_parts(folder: Path | str, name: str = "*") -> None:
    """Remove what killed writers left of files in `folder` with this name (a glob pattern).

    For the start of a job that alone writes them: a part that is being written goes too.
    """
    for path in Path(folder).glob(f".{name}.*{PART}"):
        path.unlink(missing_ok=True)


def write_atomic(path: Path | str, content: bytes | str, *, private: bool = False) -> None:
    """Write `content` as `replacing` does."""
    with replacing(path, private=private) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, atomically; NaN is refused."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def keys_once(where: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """For `json.loads`: InputError for an object that has a key twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            names = [name for name, _ in pairs]
            name = next(name for name in names if names.count(name) > 1)
            raise InputError(where, f"{name} twice", "once")
        return content

    return once


def read_json(path: Path | str, allowed: str = "a JSON file") -> Any:
    """Read a JSON file; InputError if it is missing, or is not JSON, where `allowed` is."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "a readable file") from None
    except (ValueError, RecursionError):
        raise InputError(str(path), "text that is not JSON", allowed) from None


def check_writable(folder: Path) -> None:
    """InputError if `folder`, or the nearest folder above it that exists, cannot be written."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise InputError(str(existing), "a file", "a folder for results")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(str(existing), "a folder without write permission", "a writable folder")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_rows(path: Path) -> list[dict[str, str]]:
    """All rows of a csv by column; InputError for a file that cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.DictReader(stream))
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "a csv file") from None
    except (ValueError, csv.Error):
        raise InputError(str(path), "bytes that are no text", "a csv file") from None
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():
            found = f"row {number} with another number of cells than the first line"
            raise InputError(str(path), found, "a whole csv file")
    return rows


def read_text(path: Path | str, allowed: str = "a readable file") -> str:
    """The text of a file; InputError, with what is allowed, for one that cannot be read."""
    try:
        # Editors put a byte order mark before it.
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or "bytes that are no text"
        raise InputError(str(path), found, allowed) from None


def read_lines(path: Path | str) -> list[str]:
    """The lines of a text file, for lists of paths; InputError if it cannot be read."""
    return read_text(path).splitlines()
