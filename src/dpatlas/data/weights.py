"""Published weight files: found in local folders or fetched, and opened once their checksum fits.

Their publishers put the first hex digits of a file's sha256 into its name: `resnet18-f37072fd.pth`.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from dpatlas.data.download import Report, confirm, fetch
from dpatlas.data.registry import RemoteFile
from dpatlas.data.sources import file_digest
from dpatlas.errors import InputError

# Where downloaded data sets lie too.
CACHE = Path("data/cache")
# A sub-folder of each place that is looked into.
FOLDER = "weights"
NAME = re.compile(r"[\w.-]+-(?P<digits>[0-9a-f]{8,64})\.pth")


def obtain(
    address: str,
    *,
    data_root: Path | str | None = None,
    download_folder: Path | str = CACHE,
    allow_download: bool = False,
    mirrors: Iterable[str] = (),
    attempts: int = 4,
    timeout: float = 30.0,
    pause: float = 2.0,
    progress: Report | None = None,
) -> Path:
    """The file published at `address`, from `data_root`, `download_folder` or the address itself.

    Folders are searched themselves and in their sub-folder `weights`; a download lies in
    `download_folder` under its own name once its checksum fits. The arguments after
    `allow_download` are those of `download.fetch`.

    Raises InputError for a name without a checksum, for a file with another one, or with another
    than at its download, and where there is no file; RunError if the download fails.
    """
    name = address.rpartition("/")[2]
    match = NAME.fullmatch(name)
    if match is None:
        raise InputError("weights", repr(name), "a name with the first 8 digits of its sha256")
    file = RemoteFile(name, "", address, match["digits"])
    root = Path(data_root).expanduser() if data_root else None
    if root and not root.is_dir():
        raise InputError("data.root", repr(str(data_root)), "a folder that exists, or null")
    places = [place for place in (root, Path(download_folder)) if place]
    path = locate(name, places)
    if path is None:
        if not allow_download:
            raise InputError(
                "data.root",
                f"no {name} in {' or '.join(map(str, places))}",
                f"a folder that holds it, itself or in {FOLDER}/ (official: {address}); or "
                "permission to download",
            )
        return fetch(
            file,
            download_folder,
            mirrors=mirrors,
            attempts=attempts,
            timeout=timeout,
            pause=pause,
            progress=progress,
        )
    # A user's own folder is only read.
    if not confirm(file, path, record=path.parent == Path(download_folder)):
        raise InputError(
            str(path),
            f"sha256 {file_digest(path, 'sha256')[:16]} ({path.stat().st_size} bytes)",
            f"{file.sha256}, as its name says; remove this file, it is damaged or another",
        )
    return path


def locate(name: str, places: Iterable[Path]) -> Path | None:
    """The first file of that name in `places` and in their sub-folders `weights`."""
    copies = (folder / name for place in places for folder in (place, place / FOLDER))
    return next((path for path in copies if path.is_file()), None)


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
