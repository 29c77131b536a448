import os
from dataclasses import replace

import pytest
from local_server import fail, hang, send

from dpatlas.data import download as module
from dpatlas.data.download import download
from dpatlas.data.prepare import prepare
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError, RunError

NAME = "cifar-10-python.tar.gz"


@pytest.fixture
def archive(miniature, server, monkeypatch):
    """The miniature archive, registered at the server's address."""
    content = miniature.archive_bytes()
    miniature.register(archive=content)
    entry = DATA_SETS["cifar10"]
    file = replace(entry.files[0], address=f"{server.address}/~kriz/{NAME}")
    monkeypatch.setitem(DATA_SETS, "cifar10", replace(entry, files=(file,)))
    return content


def test_whole_file_gets_its_name(server, archive, tmp_path):
    server.answers = [send(archive)]
    seen = []
    paths = download("cifar10", tmp_path / "cache", progress=lambda *state: seen.append(state))
    assert paths == [tmp_path / "cache" / NAME] and paths[0].read_bytes() == archive
    assert seen[-1] == (NAME, len(archive), len(archive))
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [NAME]


def test_file_that_is_there_is_not_fetched_again(server, archive, tmp_path):
    (tmp_path / NAME).write_bytes(archive)
    download("cifar10", tmp_path)
    assert server.paths == []


def test_damaged_file_is_replaced(server, archive, tmp_path):
    (tmp_path / NAME).write_bytes(archive[:100])
    server.answers = [send(archive)]
    download("cifar10", tmp_path)
    assert (tmp_path / NAME).read_bytes() == archive


@pytest.mark.parametrize(
    "bad", [fail(503), hang(0), send(b"x" * 1000)], ids=["refused", "cut off", "corrupted"]
)
def test_second_try_succeeds(server, archive, tmp_path, bad):
    server.answers = [bad, send(archive)]
    download("cifar10", tmp_path, pause=0.01)
    assert (tmp_path / NAME).read_bytes() == archive


@pytest.mark.parametrize("kind", ["missing", "corrupted", "truncated", "slow"])
def test_failure_is_one_line_and_leaves_no_file(server, archive, tmp_path, kind):
    answers = {
        "missing": fail(404),
        "corrupted": send(archive[:-1] + b"?"),
        "truncated": send(archive[:500], length=len(archive)),
        "slow": hang(0.5),
    }
    server.answers = [answers[kind]]
    with pytest.raises(RunError) as caught:
        download("cifar10", tmp_path, attempts=2, pause=0.01, timeout=0.1)
    reason = {"missing": "404", "corrupted": "md5", "truncated": "500 of", "slow": "timed out"}
    assert NAME in str(caught.value) and reason[kind] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_waits_twice_as_long_each_time(server, archive, tmp_path, monkeypatch):
    server.answers = [fail(500)]
    waits = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    with pytest.raises(RunError):
        download("cifar10", tmp_path, attempts=4, pause=1.5)
    assert waits == [1.5, 3.0, 6.0]


def test_mirrors_come_first_and_the_official_address_last(server, archive, tmp_path):
    server.answers = [fail(404), fail(404), send(archive)]
    download("cifar10", tmp_path, mirrors=[f"{server.address}/one/", f"{server.address}/two"])
    assert server.paths == [f"/one/{NAME}", f"/two/{NAME}", f"/~kriz/{NAME}"]


@pytest.mark.parametrize("mirror", ["file:///etc", "ftp://example.org", "example.org"])
def test_mirror_of_another_scheme_is_refused(archive, tmp_path, mirror):
    with pytest.raises(InputError, match=r"data\.mirrors"):
        download("cifar10", tmp_path, mirrors=[mirror])


def test_data_set_without_files_is_refused(tmp_path):
    with pytest.raises(InputError, match="digits"):
        download("digits", tmp_path)


def test_full_disk_is_not_tried_again(server, archive, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    server.answers = [send(archive)]
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left"):
        download("cifar10", tmp_path)
    assert len(server.paths) == 1 and list(tmp_path.iterdir()) == []


def test_interrupted_download_leaves_no_file(server, archive, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    server.answers = [send(archive)]
    with pytest.raises(KeyboardInterrupt):
        download("cifar10", tmp_path, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_prepare_downloads_only_with_permission(server, archive, two, tmp_path, capsys):
    server.answers = [send(archive)]
    places = {"download_folder": tmp_path / "cache"}
    with pytest.raises(InputError, match="permission to download"):
        prepare("cifar10", two, tmp_path / "out", **places)
    assert server.paths == []
    manifest = prepare("cifar10", two, tmp_path / "out", allow_download=True, **places)
    assert manifest["source"]["kind"] == "official archive"
    prepare("cifar10", two, tmp_path / "again", **places)
    assert len(server.paths) == 1
