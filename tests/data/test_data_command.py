"""`python -m dpatlas data`: what a tier needs of others, where it is, and where it belongs."""

import json

import pytest
from miniatures import MNIST_NAMES as NAMES
from own_miniature import CLASSES, GREY, pile

from dpatlas.errors import run_command
from dpatlas_workflow.commands import data as command
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import read_tier, validate


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
    for part in (str(tmp_path / "cache"), "cifar-100-python.tar.gz", "https://"):
        assert part in lines["cifar100"]
    assert "https://" not in lines["pneumonia-224"] and "Mendeley" in lines["pneumonia-224"]
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
    assert names == ["cifar10", "mnist", "pneumonia", "weights of imagenet-efficientnet-lite0"]


def test_mirrors_reach_the_jobs_unless_nothing_may_be_fetched():
    mirrors = ["https://one.example/a", "http://two.example"]
    allowed = atlas("paper", download=True, mirrors=mirrors).data_source()
    assert allowed == "--allow-download " + " ".join(f"--mirror {each}" for each in mirrors)
    assert atlas("paper", download=True, mirrors=mirrors, offline=True).data_source() == ""
    assert atlas("paper", download=False, mirrors=mirrors).data_source() == ""


@pytest.mark.parametrize("there", [True, False])
def test_an_own_set_is_listed_with_its_place_or_the_key_that_names_it(tmp_path, there):
    scans = tmp_path / "scans"
    if there:
        pile(scans, 2)
    config = read_tier("smoke")
    config["data"]["own"] = {"my-scans": {**GREY, "path": str(scans)}}
    (chosen,) = config["dp_sgld"]["accuracy"]["sets"]
    split = {"classes": CLASSES, "n_train": 60, "n_test": 20, "n_validation": 20}
    chosen.update(data={"name": "my-scans", **split}, features="raw", backbone=None)
    atlas = Atlas(validate(config))
    (each,) = command.needed(atlas)
    lines = command.describe([each], [tmp_path], atlas)
    if there:
        assert (each.name, each.found) == ("my-scans", f"own image folder, {scans}")
        assert command.missing(atlas) == [] and f"my-scans: own image folder, {scans}" in lines
    else:
        (line,) = command.missing(atlas)
        assert line.startswith("my-scans: missing") and line in lines
        assert "data.own.my-scans.path" in line and str(scans) in line
