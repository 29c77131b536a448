"""Shared by the readers of published archives: which copy there is, and what its files hold.

Nothing is unpacked to disk, so names inside an archive never become paths: a member counts if its
whole name is one that is expected.
"""

import gzip
import lzma
import math
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.data.bounded import check_kind, check_size, read_file
from dpatlas.data.definitions import DataSet
from dpatlas.data.sources import Source, check_md5
from dpatlas.errors import InputError

DAMAGED = (tarfile.TarError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError)

OFFICIAL_ARCHIVE = "official archive"
OFFICIAL_BATCHES = "official archive, unpacked"
# In bytes; the largest file that is read, STL-10's test images, has 221 million.
LARGEST_FILE = 1 << 28


def official_marks(data_set: DataSet) -> dict[str, str]:
    """Names that an official copy goes by, by kind of source: packed, and as its folder."""
    packed, folder, *_ = data_set.accepts
    return {OFFICIAL_ARCHIVE: packed, OFFICIAL_BATCHES: folder}


def folders(searched: Sequence[Path], *names: str) -> list[Path]:
    """Folders that may hold a copy: each one, followed by its sub-folders of these names."""
    return [path for folder in searched for path in (folder, *(folder / name for name in names))]


def first_copy(marks: Mapping[str, str], searched: Sequence[Path]) -> Source | None:
    """The best copy in the folders `searched`; an earlier mark is better than a later one.

    marks: kind of source -> name, with a slash at the end for a folder. Raises InputError for a
    folder where a file is expected and the reverse.
    """
    for kind, mark in marks.items():
        for folder in searched:
            path = folder / mark
            if path.exists():
                check_kind(path, folder=mark.endswith("/"))
                return Source(kind, path)
    return None


def official_files(source: Source, data_set: DataSet) -> tuple[dict[str, bytes], str]:
    """What every file with an md5 holds, by name, of an official copy; and the copy's checksum.

    Raises InputError, with the file and what is wrong, for a wrong md5, a truncated or damaged
    archive, and for a missing file.
    """
    if source.kind == OFFICIAL_ARCHIVE:
        return _packed(source.required_path, data_set), f"md5:{data_set.files[0].md5}"
    checksum = f"sha256:{sha256(canonical_json(dict(data_set.unpacked_md5)))}"
    return _unpacked(source.required_path, data_set), checksum


def member_bytes(
    where: str, archive: tarfile.TarFile, member: tarfile.TarInfo, limit: int
) -> bytes:
    """What a regular file of the archive at `where` holds; InputError beyond `limit` bytes."""
    check_size(f"{where}: {member.name}", member.size, limit)
    return cast(IO[bytes], archive.extractfile(member)).read()


def by_class(
    pixels: np.ndarray, targets: np.ndarray, selected: Sequence[Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Records of the `selected` targets, one after the other, and their positions as labels.

    pixels (n, d), targets (n,): codes or names; each target's records stay in their order.
    """
    parts = [pixels[targets == target] for target in selected]
    labels = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return np.concatenate(parts), labels.astype(np.int64)


def by_split(
    images: Iterable[tuple[str, str, np.ndarray]],
    splits: Iterable[str],
    data_set: DataSet,
    classes: Sequence[str],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The `splits` of `Images`, from split, class and pixels (d,) of every image in their order."""
    listed, size, found = list(images), math.prod(data_set.image_shape), {}
    for split in splits:
        pixels = [each for part, _, each in listed if part == split]
        names = np.array([name for part, name, _ in listed if part == split], dtype=object)
        found[split] = by_class(np.array(pixels, np.uint8).reshape(-1, size), names, classes)
    return found


def damaged(path: Path, error: Exception) -> InputError:
    """For an archive that cannot be read to its end."""
    return InputError(str(path), f"a truncated or damaged archive ({error})", "a whole archive")


def _packed(path: Path, data_set: DataSet) -> dict[str, bytes]:
    """Reading stops with the last file that is wanted."""
    check_md5(path, data_set.files[0].md5)
    folder = official_marks(data_set)[OFFICIAL_BATCHES]
    wanted = {f"{folder}{name}": name for name in data_set.unpacked_md5}
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                if member.name in wanted and member.isreg():
                    content = member_bytes(str(path), archive, member, LARGEST_FILE)
                    files[wanted[member.name]] = content
                if len(files) == len(wanted):
                    return files
    except DAMAGED as error:
        raise damaged(path, error) from None
    missing = ", ".join(name for name in data_set.unpacked_md5 if name not in files)
    raise InputError(str(path), f"no {missing}", "all files of the official copy")


def _unpacked(path: Path, data_set: DataSet) -> dict[str, bytes]:
    missing = [name for name in data_set.unpacked_md5 if not (path / name).is_file()]
    if missing:
        allowed = f"all files of {data_set.name}: {', '.join(data_set.unpacked_md5)}"
        raise InputError(str(path), f"no {', '.join(missing)}", allowed)
    files = {}
    for name, md5 in data_set.unpacked_md5.items():
        check_md5(path / name, md5)
        files[name] = read_file(path / name, LARGEST_FILE)
    return files
