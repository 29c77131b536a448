"""Published weight files: found in local folders or fetched, and opened once their checksum fits.

Their publishers put the first hex digits of a file's sha256 into its name: `resnet18-f37072fd.pth`.
"""

import contextlib
import http.client
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from dpatlas.data.sources import file_digest
from dpatlas.errors import InputError, RunError

# Where downloaded data sets lie too.
CACHE = Path("data/cache")
# A sub-folder of each place that is looked into.
FOLDER = "weights"
NAME = re.compile(r"[\w.-]+-(?P<digits>[0-9a-f]{8,64})\.pth")
# Seconds without a byte after which a download is given up.
TIMEOUT = 30.0


def obtain(
    address: str,
    *,
    data_root: Path | str | None = None,
    download_folder: Path | str = CACHE,
    allow_download: bool = False,
) -> Path:
    """The file published at `address`, from `data_root`, `download_folder` or the address itself.

    Folders are searched themselves and in their sub-folder `weights`; a download lies in
    `download_folder` under its own name once its checksum fits.

    Raises InputError for a name without a checksum, for a file with another one and where there is
    no file; RunError if the download fails.
    """
    name = address.rpartition("/")[2]
    match = NAME.fullmatch(name)
    if match is None:
        raise InputError("weights", repr(name), "a name with the first 8 digits of its sha256")
    root = Path(data_root).expanduser() if data_root else None
    if root and not root.is_dir():
        raise InputError("data.root", repr(str(data_root)), "a folder that exists, or null")
    places = [place for place in (root, Path(download_folder)) if place]
    folders = [folder for place in places for folder in (place, place / FOLDER)]
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        if not allow_download:
            raise InputError(
                "data.root",
                f"no {name} in {' or '.join(map(str, places))}",
                f"a folder that holds it, itself or in {FOLDER}/ (official: {address}); or "
                "permission to download",
            )
        path = Path(download_folder) / name
        _fetch(address, path, match["digits"])
    found = file_digest(path, "sha256")
    if not found.startswith(match["digits"]):
        raise InputError(
            str(path),
            f"sha256 {found[:16]} ({path.stat().st_size} bytes)",
            f"{match['digits']}, as its name says; remove this file, it is damaged or another",
        )
    return path


def read(path: Path, entry: str | None = None) -> dict[str, Tensor]:
    """The state dict in a file, or in its `entry`, on the CPU; no code in it is run.

    Raises InputError for a file that holds anything but tensors by name.
    """
    allowed = "tensors by name"
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    # A damaged file can raise nearly anything, and every one of them means the same.
    except Exception:
        raise InputError(str(path), "a file that cannot be read", allowed) from None
    if entry is not None and isinstance(found, dict):
        found = found.get(entry)
    if not (isinstance(found, dict) and all(isinstance(each, Tensor) for each in found.values())):
        raise InputError(str(path), f"a {type(found).__name__} of other things", allowed)
    return dict(found)


def _fetch(address: str, path: Path, digits: str) -> None:
    """By the loader that goes with such files: it writes beside `path`, checks, then renames."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _timeout(TIMEOUT):
            torch.hub.download_url_to_file(address, str(path), digits, progress=False)
    except (OSError, http.client.HTTPException, RuntimeError) as error:
        raise RunError(f"{path.name} could not be downloaded from {address}: {error}") from None


@contextlib.contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """For sockets opened within: torch's loader takes no limit of its own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
