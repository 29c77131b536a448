"""Downloads of published files: checked before they get their name, resumed where they broke off.

`downloads.json` in the folder says where each file of it came from.
"""

import datetime
import email.utils
import functools
import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from dpatlas.core.files import read_json, write_json
from dpatlas.core.guard import checked, integer, real
from dpatlas.core.progress import Progress
from dpatlas.data.definitions import RemoteFile
from dpatlas.data.fetch import (
    Ask,
    Digests,
    Part,
    PermanentFailure,
    Redirects,
    RestartNeeded,
    disk,
    is_http,
    locked,
    transfer,
)
from dpatlas.data.registry import find
from dpatlas.errors import InputError, RunError

RECORDS = "downloads.json"
# Longest wait in seconds that a server may ask for.
LONGEST_WAIT = 60.0
# Errors after which another request may succeed, beside those of the server (500 and above).
TEMPORARY = (http.HTTPStatus.REQUEST_TIMEOUT, http.HTTPStatus.TOO_MANY_REQUESTS)

Report = Callable[[str, int, int], None]


class Transfer(TypedDict, total=False):
    """How `fetch` transfers a file: its arguments behind the folder."""

    mirrors: Iterable[str]
    attempts: int
    timeout: float
    pause: float
    progress: Report | None


def download(name: str, folder: Path | str, **transfer: Unpack[Transfer]) -> list[Path]:
    """Fetch the official files of data set `name` into `folder`; those there are kept.

    `transfer`, and what is raised, as for `fetch`; and InputError for a data set without files.
    """
    files = find(name).files
    if not files:
        raise InputError("data set", repr(name), "one with files to download")
    transfer["mirrors"] = tuple(transfer.get("mirrors", ()))
    return [fetch(file, folder, **transfer) for file in files]


@checked(attempts=integer(ge=1), timeout=real(gt=0), pause=real(ge=0))
def fetch(
    file: RemoteFile,
    folder: Path | str,
    *,
    mirrors: Iterable[str] = (),
    attempts: int = 4,
    timeout: float = 30.0,
    pause: float = 2.0,
    progress: Report | None = None,
) -> Path:
    """`file` in `folder`; one that is there with the published checksum is kept.

    Each of the `attempts` tries the `mirrors` (base addresses) and then the official address;
    between attempts it waits `pause` seconds, twice as long each time, or as long as a server asks,
    up to a minute. `timeout` is in seconds, per read. `progress(file name, bytes so far, bytes in
    all or 0)` is called after every chunk; bytes of an earlier call count.

    The bytes that came before a transfer broke stay in a part file, from which the next attempt
    continues, in this process or another one. Two processes do not mix: the second waits.

    Raises InputError for an address that is not http and for a file that is there but is not the
    one that was recorded, RunError if no attempt gave the published checksum or the disk refused.
    """
    addresses = [f"{_checked_mirror(mirror)}/{file.name}" for mirror in mirrors]
    if not is_http(file.address):
        raise InputError("address", repr(file.address), "one with http or https")
    path = Path(folder) / file.name
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path):
        if path.is_file() and confirm(file, path):
            return path
        # A damaged list is better found before a download than after it.
        recorded(path.parent, path.name)
        part = Part(path)
        if part.size and part.origin and not part.digests.misfit(file):
            address = part.origin["address"]
        else:
            # Made for each call, so that it takes the proxies of today's environment.
            opener = urllib.request.build_opener(Redirects)
            ask = functools.partial(opener.open, timeout=timeout)
            sources = [_Source(each) for each in (*addresses, file.address)]
            address = _from_any(sources, file, part, ask, attempts, pause, progress)
        part.become(path)
        _record(path, address, part.digests)
    return path


def progress_bars() -> Report:
    """A function for `fetch` that shows the progress of each file on stderr."""
    bars: dict[str, Progress] = {}

    def report(name: str, received: int, total: int) -> None:
        bar = bars.setdefault(name, Progress(total, f"{name}, bytes"))
        # A transfer that begins anew counts from 0 again.
        bar.advance(units=received - bar.done)

    return report


def recorded(folder: Path | str, name: str) -> dict[str, Any] | None:
    """The entry of file `name` in `downloads.json` of `folder`; None if there is none.

    Keys: address (None where it is not known), md5, sha256, bytes, date (UTC, of the record).
    Raises InputError if that file is damaged.
    """
    return _records(Path(folder) / RECORDS).get(name)


def confirm(file: RemoteFile, path: Path, *, record: bool = True) -> bool:
    """Whether the file at `path` has the published checksum.

    If so and it has no record in its folder it gets one, unless `record` is False or the folder may
    not be written. Raises InputError for a file with another sha256 than recorded.
    """
    with disk(path):
        digests = Digests.of(path)
    found, known = digests.sha256.hexdigest(), recorded(path.parent, path.name)
    if known and known["sha256"] != found:
        raise InputError(
            str(path),
            f"sha256 {found[:16]} ({digests.size} bytes)",
            f"{known['sha256'][:16]}, as {RECORDS} says; remove it, or its entry there if you "
            "replaced the file",
        )
    fits = not digests.misfit(file)
    if fits and record and not known and os.access(path.parent, os.W_OK):
        _record(path, None, digests)
    return fits


@dataclass
class _Source:
    """An address in one call of `fetch`: why it has not delivered the file, and whether to go on.

    failed: not to be asked again. restarted: its transfer has already begun from scratch once.
    """

    address: str
    reason: str = ""
    failed: bool = False
    restarted: bool = False


def _from_any(
    sources: list[_Source],
    file: RemoteFile,
    part: Part,
    ask: Ask,
    attempts: int,
    pause: float,
    progress: Report | None,
) -> str:
    """The address that made `part` whole; RunError with a reason for each if none did."""
    made, asked = 0, 0.0
    while made < attempts and not all(source.failed for source in sources):
        if made:
            time.sleep(max(pause * 2 ** (made - 1), asked))
        made, asked = made + 1, 0.0
        for source in sources:
            if source.failed:
                continue
            try:
                _from_one(source, file, part, ask, progress)
                return source.address
            except urllib.error.HTTPError as error:
                error.close()
                source.reason = str(error)
                source.failed = error.code < 500 and error.code not in TEMPORARY
                if not source.failed:
                    asked = max(asked, _wait_asked(error.headers.get("Retry-After", "")))
            except PermanentFailure as error:
                source.reason, source.failed = str(error), True
            except (OSError, http.client.HTTPException) as error:
                source.reason = str(error) or type(error).__name__
    tried = "; ".join(f"{source.address}: {source.reason}" for source in sources)
    kept = f" ({part.size} bytes are kept for the next time)" if part.size else ""
    times = "1 attempt" if made == 1 else f"{made} attempts"
    raise RunError(f"{file.name} could not be downloaded in {times}: {tried}{kept}")


def _from_one(
    source: _Source, file: RemoteFile, part: Part, ask: Ask, progress: Report | None
) -> None:
    """Make `part` whole; from scratch, once in a call, where it turns out to be of another file."""

    def report(size: int, total: int) -> None:
        if progress:
            progress(file.name, size, total)

    while True:
        try:
            transfer(ask, source.address, part, report)
            if misfit := part.digests.misfit(file):
                raise RestartNeeded(misfit)
            return
        except RestartNeeded as reason:
            part.drop()
            if source.restarted:
                raise PermanentFailure(str(reason)) from None
            source.restarted = True


def _wait_asked(header: str) -> float:
    """Seconds that a Retry-After header asks for, at most LONGEST_WAIT; 0 for none."""
    if header.strip().isdecimal():
        return min(float(header), LONGEST_WAIT)
    try:
        until = email.utils.parsedate_to_datetime(header).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(until - time.time(), 0.0), LONGEST_WAIT)


def _checked_mirror(mirror: str) -> str:
    """Without a slash at its end."""
    if not is_http(mirror) or set(urllib.parse.urlsplit(mirror).netloc) & {"@"} or "?" in mirror:
        allowed = "addresses with http or https, without a user or a query"
        raise InputError("data.mirrors", repr(mirror), allowed)
    return mirror.rstrip("/")


def _records(path: Path) -> dict[str, dict[str, Any]]:
    records = read_json(path) if path.is_file() else {}
    if not isinstance(records, dict) or not all(
        isinstance(record, dict) and "sha256" in record for record in records.values()
    ):
        raise InputError(str(path), "another content", "records of downloads; remove this file")
    return records


def _record(path: Path, address: str | None, digests: Digests) -> None:
    """Note the file at `path` in its folder; without an address only if it is not noted yet."""
    note = path.with_name(RECORDS)
    with locked(note), disk(note):
        records = _records(note)
        if address is None and path.name in records:
            return
        records[path.name] = {
            "address": address,
            "md5": digests.md5.hexdigest(),
            "sha256": digests.sha256.hexdigest(),
            "bytes": digests.size,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        write_json(note, records)
