"""Downloads: what is asked of whom, what is kept of a broken one, what is recorded and refused."""

import errno
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from filelock import FileLock
from local_server import fail, page, send, serve

from dpatlas.data import download as module
from dpatlas.data.definitions import RemoteFile
from dpatlas.data.download import CHUNK, RECORDS, confirm, fetch, recorded
from dpatlas.errors import InputError, RunError

NAME = "archive.tar.gz"
CONTENT, OTHER = (random.Random(seed).randbytes(6 * CHUNK + 100) for seed in (1, 2))
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()
# A transfer that breaks here keeps two chunks.
CUT, KEPT = 2 * CHUNK + 500, 2 * CHUNK
REST = f"bytes={KEPT}-"


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """How long pooch would have waited between attempts."""
    waits = []
    monkeypatch.setattr("pooch.core.time.sleep", waits.append)
    return waits


def file_at(server, name=NAME, md5=MD5, sha256=""):
    return RemoteFile(name, md5, f"{server.address}/{name}", sha256)


def get(server, folder, *mirrors):
    path = fetch(file_at(server), folder, [f"{server.address}/{each}" for each in mirrors])
    assert path == folder / NAME and path.read_bytes() == CONTENT
    assert not (folder / f"{NAME}.part").exists()


def broken(server, folder, *mirrors, **checksums):
    """The message of a download that fails; nothing got the final name."""
    file = file_at(server, **checksums)
    with pytest.raises(RunError) as caught:
        fetch(file, folder, [f"{server.address}/{mirror}" for mirror in mirrors])
    assert not (folder / NAME).exists() and recorded(folder, NAME) is None
    message = str(caught.value)
    assert NAME in message and "\n" not in message
    return message


def until(condition):
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("bad", "then"),
    [
        (fail(500), None),
        (fail(429), None),
        (send(OTHER), None),
        (send(CONTENT[:CUT], length=len(CONTENT)), REST),
    ],
    ids=["500", "429", "other content", "cut off"],
)
def test_a_second_try_asks_for_what_is_missing(server, tmp_path, waits, bad, then):
    server.answers = [bad, serve(CONTENT)]
    get(server, tmp_path)
    assert server.ranges() == [None, then] and waits == [1]


@pytest.mark.parametrize("answer", [{}, {"ranges": False}], ids=["rest", "whole"])
def test_a_part_of_an_earlier_call_is_gone_on_from_where_the_server_can(server, tmp_path, answer):
    server.answers = [serve(CONTENT, cut=CUT), fail(404)]
    assert f"{KEPT} bytes are kept" in broken(server, tmp_path)
    server.answers = [serve(CONTENT, **answer)]
    get(server, tmp_path)
    assert server.ranges() == [None, REST, REST]
    assert server.sent[-1] == len(CONTENT) - (0 if answer else KEPT)


@pytest.mark.parametrize(
    ("part", "asked"),
    [(CONTENT, 1), (CONTENT + b"x", 2), (OTHER, 2), (OTHER[:KEPT], 2)],
    ids=["whole", "too long", "another file", "part of another file"],
)
def test_a_part_counts_by_the_checksum_of_the_whole(server, tmp_path, part, asked):
    (tmp_path / f"{NAME}.part").write_bytes(part)
    server.answers = [serve(CONTENT)]
    get(server, tmp_path)
    assert server.ranges() == [f"bytes={len(part)}-", None][:asked]


def test_mirrors_come_first_the_official_address_last_and_each_has_its_reason(
    server, tmp_path, waits
):
    server.answers = [fail(403), page(), send(b"x")]
    message = broken(server, tmp_path, "one/", "two")
    assert f"{server.address}/one/{NAME}: HTTP status 403" in message
    assert f"{server.address}/two/{NAME}: an HTML page" in message
    assert f"{server.address}/{NAME}: md5 " in message and f"where {MD5} is published" in message
    # What another request would not change is asked for once.
    assert server.paths == [f"/one/{NAME}", f"/two/{NAME}", *[f"/{NAME}"] * 4]
    assert waits == [1, 2, 3]
    server.answers = [serve(CONTENT, cut=CUT), page(), serve(CONTENT)]
    get(server, tmp_path, "one", "two")
    assert recorded(tmp_path, NAME)["address"] == f"{server.address}/two/{NAME}"
    assert server.ranges()[-3:] == [None, REST, REST]


@pytest.mark.parametrize(
    "mirror", ["file:///etc", "https://user:word@example.org", "https://example.org/?file="]
)
def test_bad_mirrors_are_refused(server, tmp_path, mirror):
    with pytest.raises(InputError, match=r"data\.mirrors"):
        fetch(file_at(server), tmp_path, [server.address, mirror])
    assert server.paths == [] and list(tmp_path.iterdir()) == []


def test_a_packed_file_stays_packed_whatever_the_server_calls_it(server, tmp_path):
    content = gzip.compress(CONTENT)
    server.answers = [serve(content, **{"Content-Encoding": "x-gzip"})]
    file = file_at(server, md5=hashlib.md5(content).hexdigest())
    path = fetch(file, tmp_path)
    assert path.read_bytes() == content
    # Readable for others, as any file of the user's.
    (tmp_path / "any").touch()
    assert path.stat().st_mode == (tmp_path / "any").stat().st_mode


def test_a_stalled_transfer_is_given_up_and_gone_on_from(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    server.answers = [serve(CONTENT, cut=CUT, stall=10), serve(CONTENT)]
    get(server, tmp_path)
    assert server.ranges() == [None, REST]


def test_a_full_disk_ends_it_at_once_and_the_part_is_kept(server, tmp_path, monkeypatch):
    def full(self, *_, **__):
        if self.done:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.done += 1

    server.answers = [serve(CONTENT)]
    with monkeypatch.context() as patch:
        patch.setattr(module.Progress, "advance", full)
        message = broken(server, tmp_path, "mirror")
    assert "No space left" in message and len(server.paths) == 1
    get(server, tmp_path)
    assert server.ranges()[1].startswith("bytes=")


PROCESS = """
import sys
from dpatlas.data.download import fetch
from dpatlas.data.definitions import RemoteFile
fetch(RemoteFile(*sys.argv[1:4]), sys.argv[4])
"""


def test_a_killed_process_is_gone_on_from_by_another(server, tmp_path):
    server.answers = [serve(CONTENT, cut=CUT, stall=30), serve(CONTENT)]
    part, file = tmp_path / f"{NAME}.part", file_at(server)
    words = [sys.executable, "-c", PROCESS, file.name, file.md5, file.address, str(tmp_path)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as killed:
        until(lambda: part.is_file() and part.stat().st_size)
        killed.kill()
    size = part.stat().st_size
    assert killed.returncode == -9 and not (tmp_path / NAME).exists()
    get(server, tmp_path)
    assert server.ranges() == [None, f"bytes={size}-"]


def test_a_second_process_waits_and_finds_the_file(server, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(module, "say", said.append)
    with FileLock(tmp_path / f"{NAME}.lock"):
        second = threading.Thread(target=get, args=(server, tmp_path), daemon=True)
        second.start()
        until(lambda: said)
        (tmp_path / NAME).write_bytes(CONTENT)
    second.join(20)
    assert not second.is_alive() and NAME in said[0] and "waiting" in said[0]
    assert server.paths == []


@pytest.fixture
def fetched(server, tmp_path):
    """A file that was fetched, beside its record; a second request would get another one."""
    server.answers = [serve(CONTENT), serve(OTHER)]
    return fetch(file_at(server), tmp_path)


def test_a_download_is_recorded_and_kept(server, tmp_path, fetched):
    found = recorded(tmp_path, NAME)
    assert found.keys() == {"address", "md5", "sha256", "bytes", "date"}
    assert (found["md5"], found["sha256"], found["bytes"]) == (MD5, SHA256, len(CONTENT))
    assert found["address"] == f"{server.address}/{NAME}"
    get(server, tmp_path)
    # A file from elsewhere gets a record without an address.
    fetched.rename(tmp_path / "b.gz")
    for _ in range(2):
        fetch(file_at(server, "b.gz"), tmp_path)
        assert recorded(tmp_path, "b.gz")["address"] is None
    assert len(server.paths) == 1 and recorded(tmp_path / "nowhere", NAME) is None


@pytest.mark.parametrize("content", [OTHER, b""], ids=["other", "empty"])
def test_a_file_that_is_not_the_recorded_one_is_refused(server, fetched, tmp_path, content):
    fetched.write_bytes(content)
    with pytest.raises(InputError) as caught:
        fetch(file_at(server), tmp_path)
    message = str(caught.value)
    for part in (str(fetched), f"({len(content)} bytes)", SHA256[:16], RECORDS, "remove it, or"):
        assert part in message
    assert fetched.read_bytes() == content and len(server.paths) == 1


@pytest.mark.parametrize("sha256", ["", hashlib.sha256(OTHER).hexdigest()[:8]])
def test_a_file_is_fetched_anew_where_another_is_published(server, fetched, tmp_path, sha256):
    md5 = "" if sha256 else hashlib.md5(OTHER).hexdigest()
    path = fetch(file_at(server, md5=md5, sha256=sha256), tmp_path)
    assert path.read_bytes() == OTHER and len(server.paths) == 2
    assert recorded(tmp_path, NAME)["sha256"] == hashlib.sha256(OTHER).hexdigest()


def test_both_checksums_must_fit(server, tmp_path):
    server.answers = [serve(CONTENT)]
    message = broken(server, tmp_path, sha256="0" * 8)
    assert f"sha256 {SHA256}" in message and "where 00000000 is published" in message


@pytest.mark.parametrize("content", ["", "[]", '{"archive.tar.gz": {}}'])
def test_damaged_records_are_named_and_not_overwritten(server, tmp_path, content):
    (tmp_path / NAME).write_bytes(CONTENT)
    (tmp_path / RECORDS).write_text(content)
    for name in (NAME, "b.gz"):
        with pytest.raises(InputError, match=RECORDS):
            fetch(file_at(server, name), tmp_path)
    assert (tmp_path / RECORDS).read_text() == content and server.paths == []


def test_records_of_downloads_at_the_same_time_are_all_there(server, tmp_path):
    server.answers = [serve(CONTENT)]
    names = {f"{number}.gz" for number in range(12)}
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: fetch(file_at(server, name), tmp_path), names, timeout=20))
    assert set(json.loads((tmp_path / RECORDS).read_text())) == names


def test_a_folder_that_is_only_read_gets_no_record(server, tmp_path, monkeypatch):
    path = tmp_path / NAME
    path.write_bytes(CONTENT)
    assert confirm(file_at(server), path, record=False)
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    assert confirm(file_at(server), path)
    assert [each.name for each in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize(
    ("md5", "sha256"),
    [("", ""), (MD5[:-1], ""), (MD5.upper(), ""), ("", SHA256[:7]), (MD5, "x" * 8)],
)
def test_a_file_without_a_published_checksum_does_not_exist(md5, sha256):
    with pytest.raises(InputError, match=r"a\.gz"):
        RemoteFile("a.gz", md5, "https://example.org/a.gz", sha256)
