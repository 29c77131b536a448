"""`downloads.json`: where the files of a folder came from, and that they are still the same."""

import datetime
import hashlib
import json
import threading

import pytest
from local_server import serve

from dpatlas.data import download as module
from dpatlas.data.definitions import RemoteFile
from dpatlas.data.download import RECORDS, confirm, fetch, recorded
from dpatlas.errors import InputError, RunError

CONTENT, OTHER = b"one content" * 20, b"another one" * 20
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()


def file_at(server, name="a.gz", md5=MD5, sha256=""):
    return RemoteFile(name, md5, f"{server.address}/{name}", sha256)


@pytest.fixture
def fetched(server, tmp_path):
    """A file that was fetched, beside its record; a second request would get another one."""
    server.answers = [serve(CONTENT), serve(OTHER)]
    return fetch(file_at(server), tmp_path)


def test_a_download_is_recorded(server, tmp_path):
    server.answers = [serve(CONTENT)]
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    for name in ("b.gz", "a.gz"):
        fetch(file_at(server, name), tmp_path)
    found = recorded(tmp_path, "a.gz")
    date = datetime.datetime.fromisoformat(found.pop("date"))
    assert before <= date <= datetime.datetime.now(datetime.UTC)
    assert found == {
        "address": f"{server.address}/a.gz",
        "md5": MD5,
        "sha256": SHA256,
        "bytes": len(CONTENT),
    }
    assert recorded(tmp_path, "b.gz")["address"] == f"{server.address}/b.gz"
    assert recorded(tmp_path, "c.gz") is None and recorded(tmp_path / "nowhere", "a.gz") is None


def test_a_file_that_is_there_gets_a_record_without_an_address(server, tmp_path):
    (tmp_path / "a.gz").write_bytes(CONTENT)
    fetch(file_at(server), tmp_path)
    found = recorded(tmp_path, "a.gz")
    assert (found["address"], found["sha256"], found["bytes"]) == (None, SHA256, len(CONTENT))
    fetch(file_at(server), tmp_path)
    assert recorded(tmp_path, "a.gz") == found and server.paths == []


def test_a_record_that_another_process_made_meanwhile_stays(server, fetched, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, "recorded", lambda *_: None)
        assert confirm(file_at(server), fetched)
    assert recorded(tmp_path, "a.gz")["address"] == f"{server.address}/a.gz"


@pytest.mark.parametrize("content", [OTHER, b""], ids=["other", "empty"])
def test_a_file_that_is_not_the_recorded_one_is_refused(server, fetched, tmp_path, content):
    fetched.write_bytes(content)
    with pytest.raises(InputError) as caught:
        fetch(file_at(server), tmp_path)
    message = str(caught.value)
    for part in (str(fetched), f"({len(content)} bytes)", SHA256[:16], RECORDS, "remove it, or"):
        assert part in message
    assert fetched.read_bytes() == content and len(server.paths) == 1
    server.answers = [serve(CONTENT)]
    fetched.unlink()
    assert fetch(file_at(server), tmp_path).read_bytes() == CONTENT


def test_the_recorded_file_is_fetched_anew_where_another_is_published(server, fetched, tmp_path):
    path = fetch(file_at(server, md5=hashlib.md5(OTHER).hexdigest()), tmp_path)
    assert path.read_bytes() == OTHER
    assert recorded(tmp_path, "a.gz")["sha256"] == hashlib.sha256(OTHER).hexdigest()


def test_a_record_counts_more_than_a_checksum_that_fits(server, tmp_path):
    (tmp_path / "a.gz").write_bytes(CONTENT)
    record = {"sha256": hashlib.sha256(OTHER).hexdigest()}
    (tmp_path / RECORDS).write_text(json.dumps({"a.gz": record}))
    with pytest.raises(InputError, match=RECORDS):
        fetch(file_at(server, sha256=SHA256[:8]), tmp_path)
    assert server.paths == []


@pytest.mark.parametrize("content", ["", "[]", '{"a.gz": {}}'])
def test_damaged_records_are_named_and_not_overwritten(server, tmp_path, content):
    (tmp_path / "a.gz").write_bytes(CONTENT)
    (tmp_path / RECORDS).write_text(content)
    for name in ("a.gz", "b.gz"):
        with pytest.raises(InputError, match=RECORDS):
            fetch(file_at(server, name), tmp_path)
    assert (tmp_path / RECORDS).read_text() == content and server.paths == []
    assert not (tmp_path / "b.gz").exists()


def test_records_of_downloads_at_the_same_time_are_all_there(server, tmp_path):
    server.answers = [serve(CONTENT)]
    names = [f"{number}.gz" for number in range(12)]
    threads = [
        threading.Thread(target=fetch, args=(file_at(server, name), tmp_path)) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert set(json.loads((tmp_path / RECORDS).read_text())) == set(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, RECORDS])


def test_both_checksums_must_fit(server, tmp_path):
    server.answers = [serve(CONTENT)]
    wrong = hashlib.sha256(OTHER).hexdigest()[:8]
    with pytest.raises(RunError, match=f"sha256 {SHA256} .* where {wrong} is published"):
        fetch(file_at(server, sha256=wrong), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert fetch(file_at(server, sha256=SHA256), tmp_path).read_bytes() == CONTENT


def test_a_folder_that_is_only_read_gets_no_record(server, tmp_path, monkeypatch):
    path = tmp_path / "a.gz"
    path.write_bytes(CONTENT)
    assert confirm(file_at(server), path, record=False)
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    assert confirm(file_at(server), path)
    assert [each.name for each in tmp_path.iterdir()] == ["a.gz"]


def test_a_disk_that_refuses_the_record_is_no_reason_to_fetch_again(server, tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    server.answers = [serve(CONTENT)]
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_json", refuse)
        with pytest.raises(RunError, match=f"{RECORDS}: Permission denied"):
            fetch(file_at(server), tmp_path)
    assert fetch(file_at(server), tmp_path).read_bytes() == CONTENT and len(server.paths) == 1
    assert recorded(tmp_path, "a.gz")["sha256"] == SHA256


@pytest.mark.parametrize(
    ("md5", "sha256"),
    [("", ""), (MD5[:-1], ""), (MD5.upper(), ""), ("", SHA256[:7]), (MD5, "x" * 8)],
)
def test_a_file_without_a_published_checksum_does_not_exist(md5, sha256):
    with pytest.raises(InputError, match=r"a\.gz"):
        RemoteFile("a.gz", md5, "https://example.org/a.gz", sha256)
