"""Downloads of published files: checked before they get their name, never half there."""

import contextlib
import hashlib
import http.client
import os
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from dpatlas.core.guard import checked, integer, real
from dpatlas.data.registry import RemoteFile, find
from dpatlas.data.sources import file_digest
from dpatlas.errors import InputError, RunError

CHUNK = 1 << 18
Report = Callable[[str, int, int], None]


@checked(attempts=integer(ge=1), timeout=real(gt=0), pause=real(ge=0))
def download(
    name: str,
    folder: Path | str,
    *,
    mirrors: Iterable[str] = (),
    attempts: int = 4,
    timeout: float = 30.0,
    pause: float = 2.0,
    progress: Report | None = None,
) -> list[Path]:
    """Fetch the official files of data set `name` into `folder`; those there are kept.

    Each of the `attempts` tries the `mirrors` (base addresses) and then the official address;
    between attempts it waits `pause` seconds, twice as long each time. `timeout` is in seconds,
    per read. `progress(file name, bytes so far, bytes in all or 0)` is called after every chunk.

    Raises InputError for a data set without files or a mirror that is no http address, RunError if
    no attempt gave the published md5 or if the disk refused.
    """
    files = find(name).files
    if not files:
        raise InputError("data set", repr(name), "one with files to download")
    mirrors = tuple(mirrors)
    for mirror in mirrors:
        if urllib.parse.urlsplit(mirror).scheme not in ("http", "https"):
            raise InputError("data.mirrors", repr(mirror), "addresses with http or https")
    folder = Path(folder)
    paths = []
    for file in files:
        path = folder / file.name
        if not (path.is_file() and file_digest(path, "md5") == file.md5):
            addresses = [f"{mirror.rstrip('/')}/{file.name}" for mirror in mirrors]
            _fetch(file, [*addresses, file.address], path, attempts, timeout, pause, progress)
        paths.append(path)
    return paths


def _fetch(
    file: RemoteFile,
    addresses: list[str],
    path: Path,
    attempts: int,
    timeout: float,
    pause: float,
    progress: Report | None,
) -> None:
    with _disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    reasons: dict[str, str] = {}
    for attempt in range(attempts):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        for address in addresses:
            try:
                _fetch_once(file, address, path, timeout, progress)
                return
            except (OSError, http.client.HTTPException) as error:
                reasons[address] = str(error) or type(error).__name__
    tried = "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
    raise RunError(f"{file.name} could not be downloaded in {attempts} attempts: {tried}")


def _fetch_once(
    file: RemoteFile, address: str, path: Path, timeout: float, progress: Report | None
) -> None:
    """One try: OSError or HTTPException if the network or the checksum fails."""
    digest, received = hashlib.md5(usedforsecurity=False), 0
    with urllib.request.urlopen(address, timeout=timeout) as response:
        total = response.length or 0
        with _part_file(path) as write:
            while chunk := response.read(CHUNK):
                write(chunk)
                digest.update(chunk)
                received += len(chunk)
                if progress:
                    progress(file.name, received, total)
            if digest.hexdigest() != file.md5:
                size = f"{received} of {total} bytes" if received < total else f"{received} bytes"
                raise OSError(f"md5 {digest.hexdigest()} ({size}) where {file.md5} is published")


@contextlib.contextmanager
def _disk(path: Path):
    """Turn the disk's refusals into RunError: asking the network again would not help."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def _part_file(path: Path):
    """A function that writes to a new `.part` file, which becomes `path` if the block ends well.

    Otherwise the file goes. Its name is its own, so two downloads at a time cannot mix.
    """
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    with _disk(path):
        stream = part.open("xb")

    def write(chunk: bytes) -> None:
        with _disk(path):
            stream.write(chunk)

    try:
        yield write
        with _disk(path):
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
            part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            stream.close()
        part.unlink(missing_ok=True)
        raise
