"""One archive of a tier's raw records, from which verdicts, figures and page can be made again.

It holds records, lineages, verdicts, checksums and what the claims need to know of the config:
neither data nor weights, and nothing about the machine. `bundle.json` in it has the sha256 of every
other file. Equal runs give equal bytes.
"""

import gzip
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from dpatlas import __version__
from dpatlas.base.canonical import sha256
from dpatlas.base.files import replacing
from dpatlas.errors import InputError
from dpatlas_workflow.report.index import Shape, checked

NAME, FORMAT = "bundle.json", 1
RECORDS = re.compile(r"runs/[a-z0-9_]+/[a-z0-9][a-z0-9_.-]*/record\.json")
# Every file that a bundle may hold; no other name is written anywhere.
FILES = re.compile(
    r"(bundle|config|more_runs)\.json|(claims|comparisons)\.csv|manifest\.txt|lists/[a-z0-9_]+\.(txt|json)"
    rf"|lineage/[a-z0-9_]+\.json|{RECORDS.pattern}"
)
# Bytes of all files together; a tier of hours has some tens of MB.
MOST_BYTES = 2**30
ALLOWED = "an archive that `python -m dpatlas bundle` wrote"


class About(Shape):
    """bundle.json: what an archive says of itself."""

    format: Literal[1]
    tier: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
    commit: str | None
    files: dict[str, str]


def write_bundle(
    path: Path, tier: str, files: Mapping[str, bytes | Path], commit: str | None
) -> None:
    """Write the archive of these files of a tier (content or path, by name in the archive).

    commit: of the code, or None.
    """
    contents = {
        name: value.read_bytes() if isinstance(value, Path) else value
        for name, value in sorted(files.items())
    }
    about = {
        "format": FORMAT,
        "dpatlas": __version__,
        "tier": tier,
        "commit": commit,
        "files": {name: sha256(content) for name, content in contents.items()},
    }
    first = (json.dumps(about, indent=1, sort_keys=True) + "\n").encode()
    # Without a file's name, owner and time: none of them says anything about the run.
    with (
        replacing(path) as stream,
        gzip.GzipFile("", "wb", compresslevel=9, fileobj=stream, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in {NAME: first, **contents}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def may_be_replaced(path: Path) -> bool:
    """Whether a file is empty or packed, as archives are: a result or a config is neither."""
    with path.open("rb") as stream:
        return stream.read(2) in (b"", b"\x1f\x8b")


def read_bundle(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What `bundle.json` says, and every other file by name.

    Raises InputError for an archive that is damaged, of another format, larger than `MOST_BYTES`,
    or that holds anything else than regular files of these names with the sha256 that it states.
    """
    try:
        contents = dict(_members(path))
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise InputError(str(path), error.strerror, ALLOWED) from None
    except (tarfile.TarError, OSError, EOFError, zlib.error, UnicodeError) as error:
        raise InputError(str(path), f"a damaged archive ({error})", ALLOWED) from None
    try:
        content = json.loads(contents.pop(NAME, b""))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: {NAME}", "no or another content", ALLOWED) from None
    about = checked(About, content, f"{path}: {NAME}")
    stated: Mapping[str, str] = about["files"]
    found = {name: sha256(content) for name, content in contents.items()}
    for name in sorted(stated.keys() | found.keys()):
        if stated.get(name) != found.get(name):
            states = "no such file", "a file that bundle.json does not name"
            wrong = states[name in found] if name not in stated or name not in found else "changed"
            raise InputError(f"{path}: {name}", wrong, ALLOWED)
    return about, contents


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    # To the end first, where gzip says whether the bytes are those that were packed.
    with gzip.open(path) as packed:
        content = packed.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InputError(str(path), f"more than {MOST_BYTES} bytes", ALLOWED)
    seen = set()
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive:
            name = member.name
            if not member.isreg() or not FILES.fullmatch(name) or name in seen:
                kind = "twice" if name in seen else "which no bundle holds"
                raise InputError(str(path), f"{name!r}, {kind}", ALLOWED)
            seen.add(name)
            stream = archive.extractfile(member)
            assert stream is not None
            yield name, stream.read()


def records_in(names: Iterable[str]) -> list[str]:
    """The names that are records, sorted."""
    return sorted(name for name in names if RECORDS.fullmatch(name))
