"""The result of every reader, where copies are looked for, and checksums of files."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpatlas.errors import InputError

# Where downloads lie by default, relative to the working folder.
CACHE = Path("data/cache")
# Base addresses that are tried before a file's own, without a user or a query.
MIRROR = r"^https?://[^@?#\s]+$"


@dataclass(frozen=True)
class Source:
    """Where images come from: `kind` in words and, unless a package ships them, a path."""

    kind: str
    path: Path | None = None

    @property
    def required_path(self) -> Path:
        """The path; InputError for a source without one."""
        if self.path is None:
            raise InputError("source", self.kind, "a file or folder")
        return self.path

    @property
    def where(self) -> str:
        """The path, or the kind where there is none; for messages."""
        return str(self.path or self.kind)


@dataclass(frozen=True)
class Images:
    """Images of the selected classes.

    splits: split -> (pixels (n, d) uint8, labels (n,) int64), all images of the first selected
    class first, then the second, in the order of the source; labels are positions in the selection.
    checksum: `md5:...` or `sha256:...` of the source.
    """

    splits: Mapping[str, tuple[np.ndarray, np.ndarray]]
    checksum: str


def folders_to_search(data_root: Path | str | None, download_folder: Path | str) -> list[Path]:
    """The user's folder, if there is one, then that of downloads.

    Raises InputError for a user's folder that does not exist.
    """
    root = Path(data_root).expanduser() if data_root else None
    if root and not root.is_dir():
        raise InputError("data.root", repr(str(data_root)), "a folder that exists, or null")
    return [folder for folder in (root, Path(download_folder)) if folder]


def file_digest(path: Path, algorithm: str) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def check_md5(path: Path, expected: str) -> None:
    """Raise InputError unless the file has the published md5."""
    found = file_digest(path, "md5")
    if found != expected:
        raise InputError(
            str(path),
            f"md5 {found} ({path.stat().st_size} bytes)",
            f"md5 {expected}, the published file's; remove this one, it is damaged or another",
        )
