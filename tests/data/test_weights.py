import argparse
import hashlib
import io
import pickle
import zipfile

import numpy as np
import pytest
import torch
from miniatures import Hostile

from dpatlas.data import weights
from dpatlas.data.weights import named_file, obtain, read
from dpatlas.errors import InputError
from dpatlas_workflow.commands import data as command
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import read_config, validate

STATE = {"layer.weight": torch.arange(6.0).view(2, 3), "layer.steps": torch.tensor(3)}


def content_of(state) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


CONTENT = content_of(STATE)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NAME = f"net-{SHA256[:8]}.pth"
ADDRESS = f"https://example.org/models/{NAME}"


def test_weights_in_an_entry_of_a_file_are_found_there(tmp_path):
    torch.save({"model": STATE, "epoch": 3}, tmp_path / NAME)
    found = read(tmp_path / NAME, "model")
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], STATE[name]) for name in STATE)
    for entry in ("other", "epoch", None):
        with pytest.raises(InputError, match="tensors by name"):
            read(tmp_path / NAME, entry)


def test_a_name_without_a_checksum_is_refused(tmp_path):
    for name in ("net.pth", "net-f37072f.pth", "net-f37072fd.pth.exe"):
        (tmp_path / name).write_bytes(CONTENT)
        with pytest.raises(InputError, match="first 8 digits"):
            obtain(f"https://example.org/{name}", data_root=tmp_path)


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


MB = 1 << 20


def test_a_weight_file_that_swells_is_never_opened(tmp_path, monkeypatch):
    path, packed = tmp_path / "net.pth", tmp_path / "packed.pth"
    torch.save({"weight": torch.zeros(5 * MB)}, path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert packed.stat().st_size < MB
    # Torch would unpack it.
    assert len(torch.load(packed, weights_only=True)["weight"]) == 5 * MB
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError, match="members that are not compressed"):
        read(packed)


def test_members_of_a_weight_file_that_share_their_bytes_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "net.pth"
    torch.save({"weight": torch.zeros(MB)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        member = next(each for each in archive.infolist() if each.filename.endswith("data/0"))
        again = [zipfile.ZipInfo(f"archive/data/{number}") for number in range(1, 9)]
        for info in again:
            for field in ("header_offset", "CRC", "compress_size", "file_size"):
                setattr(info, field, getattr(member, field))
            archive.filelist.append(info)
        archive._didModify = True
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError, match=r"net\.pth: found \d+ bytes packed in"):
        read(path)


def test_a_weight_file_of_an_absurd_size_or_that_is_none_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "net.pth"
    with path.open("wb") as stream:
        stream.truncate(weights.LARGEST_FILE + 1)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError, match=f"{weights.LARGEST_FILE} bytes at most"):
        read(path)
    with pytest.raises(InputError, match="Is a directory"):
        read(tmp_path)


KEY = "pretrain.backbones.mine.file"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    for name in ("here", "home", "root/weights", "cache"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return {"data_root": tmp_path / "root", "download_folder": tmp_path / "cache"}


def put(path, content=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(STATE if content is None else content, path)
    return path


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("net.pth", "here/net.pth"),
        ("~/net.pth", "home/net.pth"),
        ("net.pth", "root/net.pth"),
        ("net.pth", "root/weights/net.pth"),
        ("net.pth", "cache/net.pth"),
    ],
)
def test_a_file_is_found_as_it_is_given_and_a_relative_name_in_the_user_s_folders(
    tmp_path, folders, given, place
):
    expected = put(tmp_path / place)
    assert named_file(given, KEY, **folders).resolve() == expected
    assert named_file(str(expected), KEY, **folders) == expected


@pytest.mark.parametrize("given", ["net.pth", "~nobody-here/net.pth", "."])
def test_a_missing_file_is_named_with_its_key_and_the_places(tmp_path, folders, given):
    with pytest.raises(InputError) as caught:
        named_file(given, KEY, **folders)
    for part in (KEY, given, str(tmp_path / "root"), str(tmp_path / "cache"), "nothing is fetched"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("more", "name"),
    [(argparse.Namespace(lr=0.1), "argparse.Namespace"), (np.float64(71.1), "multiarray.scalar")],
)
def test_a_file_that_asks_for_code_is_refused_with_a_way_to_strip_it(tmp_path, more, name):
    path = put(tmp_path / "net.pth", {"state_dict": STATE, "args": more})
    with pytest.raises(InputError) as caught:
        read(path, "state_dict")
    message = str(caught.value)
    assert name in message and "can run code" in message and "\n" not in message
    # As the message says.
    torch.save(torch.load(path, weights_only=False)["state_dict"], tmp_path / "stripped.pth")
    assert "torch.save(torch.load(FILE, weights_only=False)['state_dict'], STRIPPED)" in message
    assert read(tmp_path / "stripped.pth", "state_dict").keys() == STATE.keys()


def test_the_list_of_what_a_run_needs_has_the_file_and_its_licence(tmp_path, monkeypatch):
    monkeypatch.setattr(command.prepare, "CACHE", tmp_path / "cache")
    config = read_config()
    config["data"]["root"] = str(tmp_path)
    config["pretrain"]["train"].append("mine")
    config["pretrain"]["backbones"]["mine"] = {
        "source": "moco",
        "model": "moco-v3-resnet50",
        "options": {},
        "image_shape": [3, 32, 32],
        "file": "net.pth.tar",
    }
    atlas = Atlas(validate(config))
    (line,) = command.missing(atlas)
    assert line.startswith("weights of mine: missing") and "https" not in line
    assert "pretrain.backbones.mine.file says net.pth.tar" in line
    expected = put(tmp_path / "weights/net.pth.tar")
    (found,) = command.needed(atlas)
    assert found.found == str(expected) and "CC BY-NC 4.0" in found.licence
    assert command.missing(atlas) == []
