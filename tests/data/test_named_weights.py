"""Weight files that a config names: where they are looked for, and when they are refused."""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from dpatlas.commands import data as command
from dpatlas.config.atlas import Atlas
from dpatlas.config.load import read_config, validate
from dpatlas.data.weights import named_file, read
from dpatlas.errors import InputError

KEY = "pretrain.backbones.mine.file"
STATE = {"conv.weight": torch.arange(6.0).view(2, 3)}


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


@pytest.mark.parametrize("given", ["net.pth", "/no/where/net.pth", "~nobody-here/net.pth", "."])
def test_a_missing_file_is_named_with_its_key_and_the_places(tmp_path, folders, given):
    with pytest.raises(InputError) as caught:
        named_file(given, KEY, **folders)
    for part in (KEY, given, str(tmp_path / "root"), str(tmp_path / "cache"), "nothing is fetched"):
        assert part in str(caught.value)


def test_a_checksum_is_compared_as_far_as_it_is_given(tmp_path, folders):
    path = put(tmp_path / "here/net.pth")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for digits in ("", digest[:8], digest):
        assert named_file("net.pth", KEY, digits=digits, **folders) == Path("net.pth")
    other = ("0" if digest[0] != "0" else "1") + digest[1:8]
    with pytest.raises(InputError, match=f"sha256 {digest}; allowed: {other}"):
        named_file("net.pth", KEY, digits=other, **folders)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (argparse.Namespace(lr=0.1), "argparse.Namespace"),
        (np.float64(71.1), "multiarray.scalar"),
        (Path("/"), "pathlib"),
    ],
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
