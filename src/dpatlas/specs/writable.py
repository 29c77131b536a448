"""Can the results be written? Asked before any job starts."""

import os
from pathlib import Path

from dpatlas.errors import InputError


def check_writable(folder: Path) -> None:
    """InputError if `folder`, or the nearest folder above it that exists, cannot be written."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise InputError(str(existing), "a file", "a folder for results")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(str(existing), "a folder without write permission", "a writable folder")
