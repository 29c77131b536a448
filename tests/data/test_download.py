import email.utils
import time
from dataclasses import replace

import pytest
from local_server import Server, fail, hang, page, redirect, send, serve

from dpatlas.data import download as module
from dpatlas.data.download import LONGEST_WAIT, download, recorded
from dpatlas.data.prepare import prepare
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError, RunError

NAME = "cifar-10-python.tar.gz"


@pytest.fixture
def archive(miniature, server, monkeypatch):
    """The miniature archive, registered at the server's address."""
    content = miniature.archive_bytes()
    miniature.register(archive=content)
    register(f"{server.address}/~kriz/{NAME}", monkeypatch)
    return content


@pytest.fixture
def waits(monkeypatch):
    """How long it waited between attempts, without waiting."""
    waits = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    return waits


def register(address, monkeypatch):
    entry = DATA_SETS["cifar10"]
    file = replace(entry.files[0], address=address)
    monkeypatch.setitem(DATA_SETS, "cifar10", replace(entry, files=(file,)))


def failure(folder, **options):
    """The message; nothing has the final name or a record, and no lock is left."""
    with pytest.raises(RunError) as caught:
        download("cifar10", folder, **{"pause": 0, **options})
    assert not (folder / NAME).exists() and recorded(folder, NAME) is None
    assert not list(folder.glob("*.lock"))
    message = str(caught.value)
    assert NAME in message and "\n" not in message
    return message


def test_a_damaged_file_is_replaced_by_a_whole_one_only(server, archive, tmp_path):
    (tmp_path / NAME).write_bytes(archive[:100])
    server.answers = [fail(404), send(archive)]
    with pytest.raises(RunError):
        download("cifar10", tmp_path)
    assert (tmp_path / NAME).read_bytes() == archive[:100] and recorded(tmp_path, NAME) is None
    download("cifar10", tmp_path)
    assert (tmp_path / NAME).read_bytes() == archive


@pytest.mark.parametrize(
    "bad",
    [fail(500), fail(408), fail(429), hang(0), send(b"x" * 1000)],
    ids=["500", "408", "429", "cut off", "corrupted"],
)
def test_second_try_succeeds(server, archive, tmp_path, bad):
    server.answers = [bad, send(archive)]
    download("cifar10", tmp_path, pause=0)
    assert (tmp_path / NAME).read_bytes() == archive and len(server.paths) == 2


@pytest.mark.parametrize("kind", ["corrupted", "truncated", "slow"])
def test_failure_is_one_line_and_leaves_no_file(server, archive, tmp_path, kind):
    answer, reason = {
        "corrupted": (send(archive[:-1] + b"?"), "md5"),
        "truncated": (send(archive[:500], length=len(archive)), "500 of"),
        "slow": (hang(0.5), "timed out"),
    }[kind]
    server.answers = [answer]
    message = failure(tmp_path, attempts=2, timeout=0.1 if kind == "slow" else 10)
    assert reason in message
    left = [f"{NAME}.part", f"{NAME}.part.json"] if kind == "truncated" else []
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert ("500 bytes are kept" in message) == (kind == "truncated")


@pytest.mark.parametrize("status", [401, 410])
def test_a_final_refusal_is_not_asked_again(server, archive, tmp_path, waits, status):
    server.answers = [fail(status)]
    assert f"in 1 attempt: {server.address}/~kriz/{NAME}: HTTP Error {status}" in failure(tmp_path)
    assert len(server.paths) == 1 and waits == []


def test_an_address_that_failed_is_left_out_while_others_are_asked_again(server, archive, tmp_path):
    server.answers = [fail(404), fail(503), send(archive)]
    download("cifar10", tmp_path, mirrors=[f"{server.address}/mirror"], pause=0)
    assert server.paths == [f"/mirror/{NAME}", *[f"/~kriz/{NAME}"] * 2]


def test_waits_twice_as_long_each_time_or_as_long_as_the_server_asks_up_to_a_minute(
    server, archive, tmp_path, waits
):
    server.answers = [fail(500)]
    failure(tmp_path, attempts=4, pause=1.5)
    assert waits == [1.5, 3.0, 6.0]
    waits.clear()
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    asked = [7, 1, 1000, date, "soon", email.utils.formatdate(0)]
    server.answers = [*(fail(503, retry_after=each) for each in asked), serve(archive)]
    download("cifar10", tmp_path, attempts=7, pause=0.25)
    assert waits[:3] == [7, 1, LONGEST_WAIT] and 27 < waits[3] <= 30 and waits[4:] == [4, 8]
    assert (tmp_path / NAME).read_bytes() == archive


def test_mirrors_come_first_the_official_address_last_and_each_has_its_reason(
    server, archive, tmp_path
):
    mirrors = [f"{server.address}/one/", f"{server.address}/two"]
    server.answers = [fail(403), page(), send(b"x"), send(b"y")]
    message = failure(tmp_path, mirrors=mirrors)
    assert f"{server.address}/one/{NAME}: HTTP Error 403" in message
    assert f"{server.address}/two/{NAME}: an HTML page" in message
    assert f"{server.address}/~kriz/{NAME}: md5" in message
    server.paths.clear()
    server.answers = [fail(404), fail(404), send(archive)]
    download("cifar10", tmp_path, mirrors=mirrors)
    assert server.paths == [f"/one/{NAME}", f"/two/{NAME}", f"/~kriz/{NAME}"]
    assert recorded(tmp_path, NAME)["address"] == f"{server.address}/~kriz/{NAME}"


@pytest.mark.parametrize(
    "answer",
    [
        page(body=b"sign in first"),
        page(kind="application/gzip"),
        page(kind="application/gzip", body=b"\r\n <HTML><body>404</body></HTML>"),
    ],
    ids=["type", "doctype", "html"],
)
def test_a_page_in_place_of_the_file_is_named(server, archive, tmp_path, waits, answer):
    server.answers = [answer]
    assert "an HTML page" in failure(tmp_path) and len(server.paths) == 1
    assert list(tmp_path.iterdir()) == []
    server.answers = [answer, send(archive)]
    download("cifar10", tmp_path, mirrors=[f"{server.address}/mirror"])
    assert (tmp_path / NAME).read_bytes() == archive and waits == []


@pytest.mark.parametrize(
    "mirror",
    ["file:///etc", "http://[::1", "https://user:word@example.org", "https://example.org/?file="],
)
def test_bad_mirrors_are_refused(server, archive, tmp_path, mirror):
    with pytest.raises(InputError, match=r"data\.mirrors"):
        download("cifar10", tmp_path, mirrors=[server.address, mirror])
    assert server.paths == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [301, 303, 308])
def test_redirects_are_followed(server, archive, tmp_path, status):
    server.answers = [redirect("/elsewhere", status), serve(archive)]
    download("cifar10", tmp_path)
    assert server.paths == [f"/~kriz/{NAME}", "/elsewhere"]
    assert (tmp_path / NAME).read_bytes() == archive


@pytest.mark.parametrize("scheme", ["file", "ftp", "data"])
def test_other_schemes_are_refused(server, archive, tmp_path, monkeypatch, scheme):
    local = tmp_path / NAME
    local.write_bytes(archive)
    addresses = {"file": local.as_uri(), "ftp": f"ftp://127.0.0.1/{NAME}", "data": "data:,x"}
    server.answers = [redirect(addresses[scheme])]
    assert addresses[scheme] in failure(tmp_path / "cache") and len(server.paths) == 1
    register(addresses[scheme], monkeypatch)
    with pytest.raises(InputError, match="http or https"):
        download("cifar10", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_proxy_of_the_environment_is_used(archive, tmp_path, monkeypatch):
    register(f"http://files.invalid/{NAME}", monkeypatch)
    proxy = Server()
    monkeypatch.delenv("no_proxy")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", proxy.address)
    proxy.answers = [serve(archive)]
    try:
        download("cifar10", tmp_path)
    finally:
        proxy.close()
    assert proxy.paths == [f"http://files.invalid/{NAME}"]
    assert (tmp_path / NAME).read_bytes() == archive


def test_prepare_downloads_only_with_permission(server, archive, tmp_path):
    server.answers = [send(archive)]
    places = {"download_folder": tmp_path / "cache"}
    options = {"classes": ["airplane", "automobile"]}
    with pytest.raises(InputError, match="permission to download"):
        prepare("cifar10", options, tmp_path / "out", **places)
    assert server.paths == []
    for allowed in (True, False):
        prepare("cifar10", options, tmp_path / "out", allow_download=allowed, **places)
    assert len(server.paths) == 1
