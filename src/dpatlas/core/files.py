"""Files that are either whole or absent."""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from dpatlas.errors import InputError


def write_atomic(path: Path | str, content: bytes | str) -> None:
    """Write `content` under a temporary name in the same folder, sync it, then rename.

    A reader sees the old file or the new one. On any error the temporary file is removed and the
    error, a full disk for example, goes on to the caller.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files private; results are for everyone the umask allows.
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, atomically; NaN is refused."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path | str) -> Any:
    """Read a JSON file; InputError if it is missing or is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "a readable file") from None
    except ValueError:
        raise InputError(str(path), "text that is not JSON", "a JSON file") from None


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
