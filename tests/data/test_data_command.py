"""`python -m dpatlas data`: what a tier needs of others, where it is, and where it belongs."""

import json

import pytest
from mnist_miniature import NAMES
from own_miniature import CLASSES, GREY, pile

from dpatlas.commands import data as command
from dpatlas.config.atlas import Atlas
from dpatlas.config.load import read_tier, validate
from dpatlas.errors import run_command


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(command.prepare, "CACHE", tmp_path / "cache")


def atlas(tier, **data):
    config = read_tier(tier)
    config["data"] |= data
    return Atlas(validate(config))


def test_the_embedded_tier_needs_nothing_of_others(capsys):
    assert run_command(command.main, ["--tier", "embedded"]) == 0
    assert "no published file" in capsys.readouterr().out
    assert command.missing(atlas("embedded")) == []


def test_what_is_missing_is_named_with_its_place_and_its_address(tmp_path):
    lines = {line.partition(":")[0]: line for line in command.missing(atlas("paper"))}
    assert {"cifar10", "cifar100", "mnist", "stl10", "pneumonia-224"} <= set(lines)
    assert str(tmp_path / "cache") in lines["cifar100"]
    assert "cifar-100-python.tar.gz" in lines["cifar100"]
    assert "https://" in lines["cifar100"]
    assert "https://" not in lines["pneumonia-224"]
    assert "Mendeley" in lines["pneumonia-224"]
    assert "resnet18-f37072fd.pth" in lines["weights of imagenet-resnet18"]


def test_what_is_there_is_found_in_the_user_s_folder(tmp_path):
    root = tmp_path / "mine"
    (root / "mnist").mkdir(parents=True)
    for name in NAMES:
        (root / "mnist" / name).touch()
    (root / "weights").mkdir()
    (root / "weights/resnet18-f37072fd.pth").touch()
    found = {each.name: each.found for each in command.needed(atlas("paper", root=str(root)))}
    assert str(root / "mnist") in found["mnist"]
    assert found["weights of imagenet-resnet18"].startswith(str(root))
    assert found["cifar10"] is None
    left = command.missing(atlas("paper", root=str(root)))
    assert not [line for line in left if line.startswith(("mnist", "weights of imagenet-resnet18"))]
    assert all(str(root) in line for line in left)


def test_the_list_is_there_for_tools(capsys):
    assert run_command(command.main, ["--tier", "workstation", "--json"]) == 0
    names = [each["name"] for each in json.loads(capsys.readouterr().out)]
    assert names == ["cifar10", "mnist", "pneumonia"]


def test_mirrors_reach_the_jobs_unless_nothing_may_be_fetched():
    mirrors = ["https://one.example/a", "http://two.example"]
    allowed = atlas("paper", download=True, mirrors=mirrors).data_source()
    assert allowed == (
        "--allow-download --mirror https://one.example/a --mirror http://two.example"
    )
    assert atlas("paper", download=True, mirrors=mirrors, offline=True).data_source() == ""
    assert atlas("paper", download=False, mirrors=mirrors).data_source() == ""


SPLIT = {"classes": CLASSES, "n_train": 60, "n_test": 20, "n_validation": 20}


def own_atlas(tmp_path, name="my-scans"):
    config = read_tier("smoke")
    config["data"]["own"] = {name: {**GREY, "path": str(tmp_path / "scans")}}
    (chosen,) = config["dp_sgld"]["accuracy"]["sets"]
    chosen.update(data={"name": name, **SPLIT}, features="raw", backbone=None)
    return Atlas(validate(config))


def test_an_own_set_is_listed_with_its_place(tmp_path):
    pile(tmp_path / "scans", 2)
    (each,) = command.needed(own_atlas(tmp_path))
    assert (each.name, each.found) == ("my-scans", f"own image folder, {tmp_path / 'scans'}")
    assert command.missing(own_atlas(tmp_path)) == []
    lines = command.describe([each], [tmp_path], own_atlas(tmp_path))
    assert f"my-scans: own image folder, {tmp_path / 'scans'}" in lines


def test_a_missing_one_is_named_with_its_key(tmp_path):
    (line,) = command.missing(own_atlas(tmp_path))
    assert line.startswith("my-scans: missing")
    assert "data.own.my-scans.path" in line and str(tmp_path / "scans") in line


@pytest.mark.parametrize("there", [True, False])
def test_the_command_lists_it_found_or_missing(tmp_path, capsys, there):
    if there:
        pile(tmp_path / "scans", 2)
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        f"data: {{own: {{my-scans: {{path: {tmp_path}/scans, classes: [healthy, ill], "
        "image_shape: [1, 6, 5], scaling: unit}}}\n"
        "kl_privacy: {data: {name: my-scans, classes: [ill, healthy], n_train: 64, n_add: 8}}\n"
    )
    assert run_command(command.main, ["--config", str(mine)]) == 0
    assert ("my-scans: own image folder" if there else "my-scans: missing") in (
        capsys.readouterr().out
    )
