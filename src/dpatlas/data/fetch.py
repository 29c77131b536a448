"""One transfer over HTTP into a part file, which outlives its process, and locks around it.

Beside NAME, until it is whole, lie NAME.part, NAME.part.json (where the part comes from) and
NAME.lock.
"""

import contextlib
import fcntl
import hashlib
import http.client
import io
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from dpatlas import __version__
from dpatlas.core.files import read_json, write_json
from dpatlas.core.progress import say
from dpatlas.data.definitions import RemoteFile
from dpatlas.errors import InputError, RunError

CHUNK = 1 << 18
SCHEMES = ("http", "https")
CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
# The start of a body that is a page, and how many bytes of it are looked at.
PAGE, HEAD = re.compile(rb"\s*<(!doctype|html)", re.IGNORECASE), 64
A_PAGE = "an HTML page, of a login or an error, in place of the file"

Ask = Callable[[urllib.request.Request], http.client.HTTPResponse]


class RestartNeeded(Exception):
    """A transfer cannot continue from the bytes that are there, for the reason in the message."""


class PermanentFailure(Exception):
    """Another request to the same address would fail too, for the reason in the message."""


class Digests:
    """md5, sha256 and size of a stream of bytes."""

    def __init__(self) -> None:
        self.md5, self.sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
        self.size = 0

    @classmethod
    def of(cls, path: Path) -> "Digests":
        """The digests of a file."""
        digests = cls()
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                digests.update(chunk)
        return digests

    def update(self, chunk: bytes) -> None:
        """Append `chunk` to the stream."""
        self.md5.update(chunk)
        self.sha256.update(chunk)
        self.size += len(chunk)

    def misfit(self, file: RemoteFile) -> str | None:
        """The first digest that differs from the published one, in words; None if both agree."""
        for name in ("md5", "sha256"):
            found, published = getattr(self, name).hexdigest(), getattr(file, name)
            if not found.startswith(published):
                return f"{name} {found} ({self.size} bytes) where {published} is published"
        return None


class Part:
    """The bytes of the file `path` that have arrived so far, on the disk.

    origin: address, etag, last_modified and total (bytes in all, or 0) of the response that they
    began with; None if there are no bytes that a transfer could continue from.
    """

    def __init__(self, path: Path):
        self.path = path.with_name(f"{path.name}.part")
        self.note = path.with_name(f"{path.name}.part.json")
        self.origin: dict[str, Any] | None = None
        self.digests = Digests()
        with disk(self.path):
            if self.path.is_file() and (origin := self._read_note()):
                self.origin, self.digests = origin, Digests.of(self.path)

    def _read_note(self) -> dict[str, Any] | None:
        try:
            origin = read_json(self.note)
        except InputError:
            return None
        keys = {"address", "etag", "last_modified", "total"}
        return origin if isinstance(origin, dict) and set(origin) == keys else None

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.digests.size

    def drop(self) -> None:
        """Delete it; the note goes first, since bytes without a note are never continued."""
        with disk(self.path):
            self.note.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        self.origin, self.digests = None, Digests()

    def begin(self, origin: dict[str, Any]) -> None:
        """Start an empty part that comes from `origin`."""
        self.drop()
        with disk(self.path):
            self.path.touch()
            write_json(self.note, origin)
        self.origin = origin

    @contextlib.contextmanager
    def appending(self) -> Iterator[Callable[[bytes], None]]:
        """A function that appends, unbuffered: what it has written outlives a killed process."""
        with disk(self.path):
            stream = self.path.open("ab", buffering=0)

        def append(chunk: bytes) -> None:
            with disk(self.path):
                write(stream, chunk)
            self.digests.update(chunk)

        try:
            yield append
        finally:
            with disk(self.path):
                stream.close()

    def become(self, path: Path) -> None:
        """Rename it to `path`; bytes and name are on the disk when this returns."""
        with disk(path):
            sync(self.path)
            self.path.replace(path)
            sync(path.parent)
            self.note.unlink(missing_ok=True)


def transfer(ask: Ask, address: str, part: Part, report: Callable[[int, int], None]) -> None:
    """One request, from where `part` ends; `report(bytes so far, in all or 0)` after every chunk.

    Raises RestartNeeded if the part is of another file, PermanentFailure if the address has no
    file, RunError if the disk refuses, OSError or HTTPException if the transfer breaks; the bytes
    that came before stay.
    """
    with _answer(ask, address, part) as response:
        origin, length, head = _origin(response, address), response.length, b""
        if response.headers.get_content_type() == "text/html":
            raise PermanentFailure(A_PAGE)
        before = part.origin if part.size else None
        if before and before["address"] == address and _changed(before, origin):
            raise RestartNeeded("the file there is not the one whose first part was fetched")
        if part.size and response.status == http.HTTPStatus.PARTIAL_CONTENT:
            total = _total_of_range(response, part)
        else:
            head = response.read(HEAD)
            if PAGE.match(head):
                raise PermanentFailure(A_PAGE)
            part.begin(origin)
            total = origin["total"]
        end = None if length is None else part.size + length
        with part.appending() as append:
            while chunk := head or _next(response, part.size, end):
                head = b""
                append(chunk)
                report(part.size, total)
    if part.size < (total or end or 0):
        raise OSError(f"the connection ended after {part.size} of {total or end} bytes")


def _answer(ask: Ask, address: str, part: Part) -> http.client.HTTPResponse:
    headers = {"User-Agent": f"dpatlas/{__version__}"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
        # Another server has tags of its own; there the total and the checksum have to do.
        origin = part.origin
        if origin and origin["address"] == address and (tag := _validator(origin)):
            headers["If-Range"] = tag
    try:
        return ask(urllib.request.Request(address, headers=headers))
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and part.size:
            error.close()
            raise RestartNeeded(f"the part of {part.size} bytes is not of the file there") from None
        raise
    except (ValueError, http.client.InvalidURL) as error:
        raise PermanentFailure(str(error)) from None


def _origin(response: http.client.HTTPResponse, address: str) -> dict[str, Any]:
    ranged = response.status == http.HTTPStatus.PARTIAL_CONTENT
    return {
        "address": address,
        "etag": response.headers.get("ETag"),
        "last_modified": response.headers.get("Last-Modified"),
        "total": 0 if ranged else response.length or 0,
    }


def _validator(origin: dict[str, Any]) -> str | None:
    """The value of If-Range: a weak tag does not promise equal bytes."""
    tag = origin["etag"]
    return tag if tag and not tag.startswith("W/") else origin["last_modified"]


def _changed(before: dict[str, Any], now: dict[str, Any]) -> bool:
    keys = ("etag", "last_modified", "total")
    return any(before[key] and now[key] and before[key] != now[key] for key in keys)


def _total_of_range(response: http.client.HTTPResponse, part: Part) -> int:
    """Bytes in all, 0 if unknown; RestartNeeded if the range does not go on from `part`."""
    match = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if not match or int(match[1]) != part.size:
        raise RestartNeeded("another range than the one that was asked for")
    total = 0 if match[2] == "*" else int(match[2])
    before = part.origin["total"] if part.origin else 0
    if total and before and total != before:
        raise RestartNeeded(f"{total} bytes in all where there were {before} before")
    return total or before


def _next(response: http.client.HTTPResponse, size: int, end: int | None) -> bytes:
    """The bytes that have arrived, not a full chunk: a stall then loses none of them."""
    return response.read1(CHUNK if end is None else min(CHUNK, end - size)) if size != end else b""


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The request at the new address; PermanentFailure if that is another scheme's."""
        if not is_http(newurl):
            raise PermanentFailure(f"redirects to {newurl}, which is neither http nor https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def is_http(address: str) -> bool:
    """Whether this is an address with http or https and a host."""
    try:
        parts = urllib.parse.urlsplit(address)
        return parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process, and one thread, at a time for `path`; a killed one holds no lock."""
    lock = path.with_name(f"{path.name}.lock")
    with disk(lock):
        stream = _acquire(lock, path.name)
    try:
        yield
    finally:
        # Removed while still held: whoever waits for it sees that it is gone and makes a new one.
        with contextlib.suppress(OSError):
            lock.unlink()
        stream.close()


def _acquire(lock: Path, name: str) -> io.BufferedWriter:
    while True:
        stream = lock.open("ab")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: waiting for another process that works on it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), lock.stat()):
                return stream
        stream.close()


@contextlib.contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn errors of the disk into RunError: asking the network again would not help."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path}: {error.strerror or error}") from None


def write(stream: io.FileIO, chunk: bytes) -> None:
    """Write all of `chunk`, though a nearly full disk takes less at a time."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[stream.write(rest) :]


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
