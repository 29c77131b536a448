"""Downloads of published files: checked before they get their name, resumed where they broke off.

Until the file NAME is whole its bytes lie in NAME.part; NAME.lock keeps a second process waiting.
`downloads.json` in the folder says where each file of it came from.
"""

import datetime
import functools
import os
import re
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from dpatlas import __version__
from dpatlas.base.files import read_json, write_json
from dpatlas.base.progress import Progress, say
from dpatlas.data.definitions import RemoteFile
from dpatlas.data.sources import MIRROR, file_digest
from dpatlas.errors import InputError, RunError

RECORDS = "downloads.json"
# Requests to one address, and seconds without a byte after which a request is given up.
ATTEMPTS, TIMEOUT = 4, 30.0
CHUNK = 1 << 14
# Refusals after which another request may succeed, beside the server's own errors.
TEMPORARY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


def fetch(file: RemoteFile, folder: Path | str, mirrors: Sequence[str] = ()) -> Path:
    """`file` in `folder`; one that is there with the published checksum is kept.

    The `mirrors` (base addresses) are tried in turn and then the official address, each up to
    ATTEMPTS times, with pauses of 1, 2 and 3 seconds. The bytes that came before a transfer broke
    stay, and the next attempt, in this process or another, asks for the rest; if the whole has
    another checksum than the published one, it starts from scratch. A second process waits.

    Raises InputError for a mirror that is not http and for a file that is there but is not the one
    that was recorded, RunError if no attempt gave the published checksum or the disk refused.
    """
    from filelock import FileLock, Timeout

    addresses = [f"{mirror.rstrip('/')}/{file.name}" for mirror in mirrors] + [file.address]
    for mirror in mirrors:
        if not re.fullmatch(MIRROR, mirror):
            allowed = "addresses with http or https, without a user or a query"
            raise InputError("data.mirrors", repr(mirror), allowed)
    path = Path(folder) / file.name
    lock = FileLock(f"{path}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            say(f"{path.name}: waiting for another process that works on it")
            held = lock.acquire()
        with held:
            if not (path.is_file() and confirm(file, path)):
                # A damaged list is better found before a download than after it.
                recorded(path.parent, path.name)
                _record(path, _from_any(addresses, file, path))
    except OSError as error:
        raise RunError(f"{path}: {error.strerror or error}") from None
    return path


def recorded(folder: Path | str, name: str) -> dict[str, Any] | None:
    """The entry of file `name` in `downloads.json` of `folder`; None if there is none.

    Keys: address (None where it is not known), md5, sha256, bytes, date (UTC, of the record).
    Raises InputError if that file is damaged.
    """
    return _records(Path(folder) / RECORDS).get(name)


def confirm(file: RemoteFile, path: Path, *, record: bool = True) -> bool:
    """Whether the file at `path` has the published checksums.

    If so and it has no record in its folder it gets one, unless `record` is False or the folder may
    not be written. Raises InputError for a file with another sha256 than recorded.
    """
    found, known = file_digest(path, "sha256"), recorded(path.parent, path.name)
    if known and known["sha256"] != found:
        raise InputError(
            str(path),
            f"sha256 {found[:16]} ({path.stat().st_size} bytes)",
            f"{known['sha256'][:16]}, as {RECORDS} says; remove it, or its entry there if you "
            "replaced the file",
        )
    fits = _misfit(file, path) is None
    if fits and record and not known and os.access(path.parent, os.W_OK):
        _record(path, None)
    return fits


def _misfit(file: RemoteFile, path: Path) -> str | None:
    """The first digest that differs from the published one, in words; None if both agree."""
    for name in ("md5", "sha256"):
        published = getattr(file, name)
        if published and not (found := file_digest(path, name)).startswith(published):
            size = path.stat().st_size
            return f"{name} {found} ({size} bytes) where {published} is published"
    return None


def _from_any(addresses: list[str], file: RemoteFile, path: Path) -> str:
    """The address that gave the file at `path`; RunError with a reason for each if none did."""
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    # A damaged file: pooch would keep it, which is told no checksum to compare.
    path.unlink(missing_ok=True)
    part = path.with_name(f"{path.name}.part")
    reasons = []
    for address in addresses:
        source = pooch.create(
            path=path.parent,
            base_url="",
            registry={path.name: None},
            urls={path.name: address},
            retry_if_failed=ATTEMPTS - 1,
        )
        try:
            source.fetch(path.name, downloader=functools.partial(_transfer, file, part))
            return address
        except (requests.RequestException, ValueError, RunError) as error:
            reasons.append(f"{address}: {error}")
    kept = f" ({part.stat().st_size} bytes are kept for the next time)" if part.exists() else ""
    raise RunError(f"{path.name} could not be downloaded: {'; '.join(reasons)}{kept}")


def _transfer(file: RemoteFile, part: Path, url: str, output: str, _: object) -> None:
    """A downloader of pooch: asks for the bytes that `part` lacks; all of them become `output`.

    Raises ValueError for another checksum than the published one, RunError, after which pooch does
    not ask again, where another answer is not to be expected.
    """
    import requests

    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"dpatlas/{__version__}", "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={have}-"} if have else {}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        status, length = response.status_code, int(response.headers.get("Content-Length", 0))
        # Else the part is as long as the file, or longer: its checksum tells.
        if not have or status != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            if 400 <= status < 500 and status not in TEMPORARY:
                raise RunError(f"HTTP status {status}")
            response.raise_for_status()
            if response.headers.get("Content-Type", "").startswith("text/html"):
                raise RunError("an HTML page, of a login or an error, in place of the file")
            # Some servers call a .gz file an encoding of its content, which requests would undo.
            response.raw.headers.pop("Content-Encoding", None)
            have = have if status == HTTPStatus.PARTIAL_CONTENT else 0
            with (
                part.open("ab" if have else "wb") as stream,
                Progress(have + length, f"{file.name}, bytes") as progress,
            ):
                progress.reach(have)
                for chunk in response.iter_content(CHUNK):
                    stream.write(chunk)
                    progress.advance(units=len(chunk))
    part.replace(output)
    if misfit := _misfit(file, Path(output)):
        raise ValueError(misfit)


def _records(path: Path) -> dict[str, dict[str, Any]]:
    records = read_json(path) if path.is_file() else {}
    if not isinstance(records, dict) or not all(
        isinstance(record, dict) and "sha256" in record for record in records.values()
    ):
        raise InputError(str(path), "another content", "records of downloads; remove this file")
    return records


def _record(path: Path, address: str | None) -> None:
    """Note the file at `path` in its folder; without an address only if it is not noted yet."""
    from filelock import FileLock

    note = path.with_name(RECORDS)
    with FileLock(f"{note}.lock"):
        records = _records(note)
        if address is None and path.name in records:
            return
        records[path.name] = {
            "address": address,
            "md5": file_digest(path, "md5"),
            "sha256": file_digest(path, "sha256"),
            "bytes": path.stat().st_size,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        write_json(note, records)
