"""Transfers that break: what came is kept, gone on from, and never mixed with anything else."""

import errno
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest
from local_server import etag_of, page, serve

from dpatlas.data import fetch as module
from dpatlas.data.definitions import RemoteFile
from dpatlas.data.download import RECORDS, fetch, recorded
from dpatlas.errors import RunError

NAME = "archive.tar.gz"
CONTENT = random.Random(1).randbytes(3000)
OTHER = random.Random(2).randbytes(3000)
PUBLISHED = hashlib.md5(CONTENT).hexdigest()
DATE = "Mon, 01 Jan 2024 00:00:00 GMT"
PLAIN = {"ETag": None}


def file_at(server):
    return RemoteFile(NAME, PUBLISHED, f"{server.address}/{NAME}")


def get(server, folder, **options):
    path = fetch(file_at(server), folder, **{"pause": 0, **options})
    assert path == folder / NAME and path.read_bytes() == CONTENT
    assert sorted(each.name for each in folder.iterdir()) == [NAME, RECORDS]


def broken(server, folder, **options):
    """The message of a download that fails; nothing got the final name."""
    with pytest.raises(RunError) as caught:
        fetch(file_at(server), folder, **{"pause": 0, "attempts": 1, **options})
    assert not (folder / NAME).exists() and recorded(folder, NAME) is None
    assert not list(folder.glob("*.lock"))
    return str(caught.value)


def kept(folder):
    return (folder / f"{NAME}.part").read_bytes()


def until(condition):
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_only_the_missing_bytes_are_asked_for(server, tmp_path):
    server.answers = [serve(CONTENT, cut=1000), serve(CONTENT, cut=500), serve(CONTENT)]
    seen = []
    get(server, tmp_path, progress=lambda *state: seen.append(state))
    assert server.ranges() == [None, "bytes=1000-", "bytes=1500-"]
    assert server.sent == [1000, 500, 1500]
    assert server.headers[1]["If-Range"] == etag_of(CONTENT)
    sizes = [size for _, size, _ in seen]
    assert sizes == sorted(sizes) and {1000, 1500, 3000} <= set(sizes)
    assert {(name, total) for name, _, total in seen} == {(NAME, 3000)}


@pytest.mark.parametrize(
    ("headers", "tag"),
    [
        (PLAIN, None),
        ({"ETag": 'W/"1"', "Last-Modified": DATE}, DATE),
        ({"ETag": '"1"', "Last-Modified": DATE}, '"1"'),
    ],
)
def test_if_range_carries_what_promises_equal_bytes(server, tmp_path, headers, tag):
    server.answers = [serve(CONTENT, cut=1000, **headers), serve(CONTENT, **headers)]
    get(server, tmp_path)
    assert server.headers[1].get("If-Range") == tag
    assert server.sent == [1000, 2000]


def test_a_stalled_transfer_is_given_up_and_gone_on_from(server, tmp_path):
    server.answers = [serve(CONTENT, cut=1000, stall=10), serve(CONTENT)]
    start = time.monotonic()
    get(server, tmp_path, timeout=0.5)
    assert time.monotonic() - start < 5
    assert server.ranges() == [None, "bytes=1000-"]


def test_a_server_without_ranges_starts_anew(server, tmp_path):
    cut = serve(CONTENT, cut=1000, ranges=False)
    server.answers = [cut, cut, cut, serve(CONTENT, ranges=False)]
    get(server, tmp_path)
    assert server.ranges() == [None, *["bytes=1000-"] * 3]
    assert server.sent == [1000, 1000, 1000, 3000]


@pytest.mark.parametrize("validate", [True, False], ids=["If-Range", "If-Range ignored"])
def test_a_file_that_changed_on_the_server_is_fetched_from_scratch(server, tmp_path, validate):
    server.answers = [serve(OTHER, cut=1000), serve(CONTENT, validate=validate)]
    get(server, tmp_path)
    assert server.ranges() == [None, "bytes=1000-", None]


def test_a_file_that_changes_again_and_again_is_given_up(server, tmp_path):
    server.answers = [serve(CONTENT, cut=1000, ETag=f'"{number}"') for number in range(9)]
    message = broken(server, tmp_path, attempts=9)
    assert "not the one whose first part" in message and len(server.paths) == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("part", "sent"), [(OTHER + OTHER, [3000]), (OTHER[:1000], [2000, 3000])], ids=["long", "other"]
)
def test_a_part_of_another_file_is_found_out_and_fetched_from_scratch(server, tmp_path, part, sent):
    """A part as an earlier process may have left it."""
    note = {"address": f"{server.address}/{NAME}", "etag": None, "last_modified": None, "total": 0}
    (tmp_path / f"{NAME}.part").write_bytes(part)
    (tmp_path / f"{NAME}.part.json").write_text(json.dumps(note))
    server.answers = [serve(CONTENT, **PLAIN)]
    get(server, tmp_path)
    assert server.ranges() == [f"bytes={len(part)}-", None] and server.sent == sent


def test_a_whole_file_with_another_checksum_is_fetched_once_more_and_no_more(server, tmp_path):
    server.answers = [serve(OTHER)]
    message = broken(server, tmp_path, attempts=4)
    found = hashlib.md5(OTHER).hexdigest()
    assert f"md5 {found} (3000 bytes) where {PUBLISHED} is published" in message
    assert server.ranges() == [None, None] and list(tmp_path.iterdir()) == []


def test_another_address_goes_on_with_the_same_part(server, tmp_path):
    server.answers = [serve(CONTENT, cut=1000), serve(CONTENT, ETag='"its own"')]
    get(server, tmp_path, mirrors=[f"{server.address}/mirror"], attempts=1)
    assert server.paths == [f"/mirror/{NAME}", f"/{NAME}"]
    assert server.ranges() == [None, "bytes=1000-"] and server.sent == [1000, 2000]
    assert "If-Range" not in server.headers[1]


def test_a_page_does_not_touch_the_part(server, tmp_path):
    server.answers = [serve(CONTENT, cut=1000), page(), serve(CONTENT)]
    mirrors = [f"{server.address}/{name}" for name in ("one", "two")]
    get(server, tmp_path, mirrors=mirrors, attempts=1)
    assert server.ranges() == [None, "bytes=1000-", "bytes=1000-"]
    assert server.sent == [1000, 2000]


@pytest.mark.parametrize("said", ["bytes 999-2999/3000", ""])
def test_another_range_than_the_one_asked_for_is_not_taken(server, tmp_path, said):
    wrong = serve(CONTENT, **{"Content-Range": said or None})
    server.answers = [serve(CONTENT, cut=1000), wrong, serve(CONTENT)]
    get(server, tmp_path)
    assert server.ranges() == [None, "bytes=1000-", None]


@pytest.mark.parametrize("note", [None, '{"address": "x"}'])
def test_a_part_whose_origin_is_not_known_is_not_gone_on_from(server, tmp_path, note):
    (tmp_path / f"{NAME}.part").write_bytes(CONTENT[:1000])
    if note is not None:
        (tmp_path / f"{NAME}.part.json").write_text(note)
    server.answers = [serve(CONTENT)]
    get(server, tmp_path)
    assert server.ranges() == [None]


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_ends_it_at_once_and_the_part_is_kept(server, tmp_path, monkeypatch):
    def nearly_full(stream, chunk):
        write(stream, chunk[: 1000 - stream.tell()])
        full()

    write = module.write
    monkeypatch.setattr(module, "write", nearly_full)
    server.answers = [serve(CONTENT)]
    message = broken(server, tmp_path, attempts=4, mirrors=[f"{server.address}/mirror"])
    assert "No space left" in message and NAME in message and len(server.paths) == 1
    held = len(kept(tmp_path))
    assert 0 < held <= 1000 and kept(tmp_path) == CONTENT[:held]
    monkeypatch.undo()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    get(server, tmp_path, mirrors=[f"{server.address}/mirror"])
    assert server.ranges() == [None, f"bytes={held}-"]


def test_a_whole_part_that_could_not_be_synced_needs_no_network(server, tmp_path, monkeypatch):
    server.answers = [serve(CONTENT)]
    with monkeypatch.context() as patch:
        patch.setattr(module, "sync", full)
        assert "No space left" in broken(server, tmp_path, attempts=4)
    assert kept(tmp_path) == CONTENT and len(server.paths) == 1
    get(server, tmp_path)
    assert len(server.paths) == 1
    assert recorded(tmp_path, NAME)["address"] == f"{server.address}/{NAME}"


PROCESS = """
import sys
from dpatlas.data.download import fetch
from dpatlas.data.definitions import RemoteFile
fetch(RemoteFile(*sys.argv[1:4]), sys.argv[4])
"""


def process(server, folder):
    file = file_at(server)
    words = [file.name, file.md5, file.address, str(folder)]
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, *words], stderr=subprocess.PIPE, text=True
    )


def test_a_killed_process_is_gone_on_from_by_another(server, tmp_path):
    server.answers = [serve(CONTENT, cut=1000, stall=30), serve(CONTENT)]
    part = tmp_path / f"{NAME}.part"
    with process(server, tmp_path) as killed:
        until(lambda: part.is_file() and part.stat().st_size == 1000)
        killed.kill()
    assert killed.returncode == -9 and not (tmp_path / NAME).exists()
    assert (tmp_path / f"{NAME}.lock").exists()
    with process(server, tmp_path) as other:
        _, said = other.communicate(timeout=30)
    assert other.returncode == 0, said
    assert server.ranges() == [None, "bytes=1000-"] and server.sent[-1] == 2000
    get(server, tmp_path)
    assert len(server.paths) == 2


def test_a_second_process_waits_and_finds_the_file(server, tmp_path, monkeypatch):
    go, waiting = threading.Event(), threading.Event()

    def slowly(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(CONTENT[:1000])
        go.wait(30)
        handler.wfile.write(CONTENT[1000:])

    said = []

    def hear(text):
        said.append(text)
        waiting.set()

    monkeypatch.setattr(module, "say", hear)
    server.answers = [slowly]
    with process(server, tmp_path) as first:
        until(lambda: server.paths)
        second = threading.Thread(target=get, args=(server, tmp_path), daemon=True)
        second.start()
        assert waiting.wait(20) and not (tmp_path / NAME).exists()
        go.set()
        second.join(20)
        assert not second.is_alive() and first.wait(20) == 0
    assert len(server.paths) == 1 and NAME in said[0] and "waiting" in said[0]
    get(server, tmp_path)
