import hashlib
import io
import pickle
import time

import pytest
import torch
from local_server import fail, send

from dpatlas.data import prepare, weights
from dpatlas.data.weights import obtain, read
from dpatlas.errors import InputError, RunError

STATE = {"layer.weight": torch.arange(6.0).view(2, 3), "layer.steps": torch.tensor(3)}


def content_of(state) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


CONTENT = content_of(STATE)
NAME = f"net-{hashlib.sha256(CONTENT).hexdigest()[:8]}.pth"
ADDRESS = f"https://example.org/models/{NAME}"


def fetched(server, folder, name=NAME):
    address = f"{server.address}/models/{name}"
    return obtain(address, download_folder=folder / "cache", allow_download=True)


@pytest.mark.parametrize("folder", ["root", "root/weights", "cache", "cache/weights"])
def test_a_local_file_is_found_and_read(tmp_path, folder):
    for each in ("root", folder):
        (tmp_path / each).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / NAME).write_bytes(CONTENT)
    path = obtain(ADDRESS, data_root=tmp_path / "root", download_folder=tmp_path / "cache")
    assert path == tmp_path / folder / NAME
    found = read(path)
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], STATE[name]) for name in STATE)


def test_weights_in_an_entry_of_a_file_are_found_there(tmp_path):
    torch.save({"model": STATE, "epoch": 3}, tmp_path / NAME)
    assert read(tmp_path / NAME, "model").keys() == STATE.keys()
    for entry in ("other", "epoch", None):
        with pytest.raises(InputError, match="tensors by name"):
            read(tmp_path / NAME, entry)


def test_downloads_of_data_and_weights_lie_together():
    assert weights.CACHE == prepare.CACHE


def test_a_file_whose_checksum_does_not_fit_its_name_is_never_opened(tmp_path, monkeypatch):
    (tmp_path / NAME).write_bytes(CONTENT[:-1])
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError) as caught:
        read(obtain(ADDRESS, data_root=tmp_path))
    message = str(caught.value)
    assert NAME in message and f"{len(CONTENT) - 1} bytes" in message and "\n" not in message


def test_a_missing_file_is_named_with_its_address_and_nothing_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "download_url_to_file", lambda *_: pytest.fail("fetched"))
    with pytest.raises(InputError) as caught:
        obtain(ADDRESS, data_root=tmp_path, download_folder=tmp_path / "cache")
    for part in ("data.root", str(tmp_path), NAME, ADDRESS, "permission to download"):
        assert part in str(caught.value)
    with pytest.raises(InputError, match=r"data\.root"):
        obtain(ADDRESS, data_root=tmp_path / "nowhere")


def test_a_name_without_a_checksum_is_refused(tmp_path):
    for name in ("net.pth", "net-.pth", "net-f37072f.pth", "net-f37072fd.pth.exe"):
        (tmp_path / name).write_bytes(CONTENT)
        with pytest.raises(InputError, match="first 8 digits"):
            obtain(f"https://example.org/{name}", data_root=tmp_path)


def test_a_download_gets_its_name_and_is_not_fetched_again(server, tmp_path):
    server.answers = [send(CONTENT)]
    for _ in range(2):
        path = fetched(server, tmp_path)
    assert path == tmp_path / "cache" / NAME and path.read_bytes() == CONTENT
    assert server.paths == [f"/models/{NAME}"]
    assert [each.name for each in path.parent.iterdir()] == [NAME]


@pytest.mark.parametrize(
    "answer",
    [fail(404), send(CONTENT[:-9]), send(CONTENT[:-9], len(CONTENT)), lambda _: time.sleep(1)],
    ids=["missing", "corrupted", "truncated", "slow"],
)
def test_a_failed_download_is_one_line_and_leaves_no_file(server, tmp_path, monkeypatch, answer):
    monkeypatch.setattr(weights, "TIMEOUT", 0.2)
    server.answers = [answer]
    with pytest.raises(RunError) as caught:
        fetched(server, tmp_path)
    assert NAME in str(caught.value) and "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").iterdir())


class Hostile:
    def __reduce__(self):
        return (exec, ("open('proof', 'w').close()",))


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Hostile(), protocol=2),
        content_of({"weight": Hostile()}),
        content_of([torch.zeros(2)]),
        content_of({"weight": 3.0}),
        CONTENT[:200],
        b"",
    ],
    ids=["pickle", "hostile", "list", "number", "torn", "empty"],
)
def test_a_file_that_holds_more_than_tensors_is_refused_and_runs_nothing(
    tmp_path, monkeypatch, content
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.pth"
    path.write_bytes(content)
    with pytest.raises(InputError, match="tensors by name"):
        read(path)
    assert not (tmp_path / "proof").exists()
