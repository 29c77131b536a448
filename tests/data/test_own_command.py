"""`python -m dpatlas data` and a user's own data sets."""

import pytest
from own_miniature import CLASSES, GREY, pile

from dpatlas.commands import data as command
from dpatlas.config.atlas import Atlas
from dpatlas.config.load import read_tier, validate
from dpatlas.errors import run_command

SPLIT = {"classes": CLASSES, "n_train": 60, "n_test": 20, "n_validation": 20}


def atlas(tmp_path, name="my-scans"):
    config = read_tier("smoke")
    config["data"]["own"] = {name: {**GREY, "path": str(tmp_path / "scans")}}
    (chosen,) = config["dp_sgld"]["accuracy"]["sets"]
    chosen.update(data={"name": name, **SPLIT}, features="raw", backbone=None)
    return Atlas(validate(config))


def test_an_own_set_is_listed_with_its_place(tmp_path):
    pile(tmp_path / "scans", 2)
    (each,) = command.needed(atlas(tmp_path))
    assert (each.name, each.found) == ("my-scans", f"own image folder, {tmp_path / 'scans'}")
    assert command.missing(atlas(tmp_path)) == []
    lines = command.describe([each], [tmp_path], atlas(tmp_path))
    assert f"my-scans: own image folder, {tmp_path / 'scans'}" in lines


def test_a_missing_one_is_named_with_its_key(tmp_path):
    (line,) = command.missing(atlas(tmp_path))
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
