"""A user's own data set in the config: where it may be named, and what its ids depend on."""

import os

import pytest
from tier_atlases import atlas_of

from dpatlas.base.facts import DataFields
from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, read_config
from dpatlas_workflow.config.sizes import array_mb, inputs_of

SCANS = {
    "path": "scans",
    "classes": ["healthy", "ill", "unsure"],
    "image_shape": [1, 28, 28],
    "scaling": "unit",
}
PRIVATE = {"name": "my-scans", "classes": ["healthy", "ill"], "n_train": 400}
HELD_OUT = {"n_test": 100, "n_validation": 100}
SICK = ["healthy", "sick"]
SCAN_SHAPED = {"source": "leaves-grey", "model": "small-cnn-t", "options": {"pool": 2}}


def config(scans=None, dp_sgld=None, kl=None, on=True, **changes):
    """The embedded config with `my-scans` in every paper that can take it."""
    default = read_config()
    accuracy = {**default["dp_sgld"]["accuracy"]["sets"][2], "data": {**PRIVATE, **HELD_OUT}}
    accuracy |= {"features": "raw", "backbone": None, "batches": [40]}
    certificates = default["max_information"]["certificates"]["sets"][0]
    certificates = {**certificates, "data": {**PRIVATE, "n_test": 100}}
    trained = [*default["pretrain"]["train"], "scan-shaped"]
    scenario = {k: v for k, v in default["lp_fft"]["scenarios"][0].items() if k != "name"}
    scenario |= {"name": "own", "data": {**PRIVATE, **HELD_OUT}, "backbone": "scan-shaped"}
    return load_config(
        changes={
            "tier": "t",
            "data": {"own": {"my-scans": {**SCANS, **(scans or {})}}},
            "pretrain": {"backbones": {"scan-shaped": SCAN_SHAPED}, "train": trained},
            "dp_sgld": {"accuracy": {"sets": [{**accuracy, **(dp_sgld or {})}]}},
            "lp_fft": {"enabled": on, "scenarios": [scenario], "clip_sweep": None},
            "max_information": {"certificates": {"sets": [certificates]}},
            "kl_privacy": {"data": {**PRIVATE, "n_add": 50, **(kl or {})}},
            **changes,
        }
    )


@pytest.fixture(scope="module")
def atlas():
    return Atlas(config())


@pytest.mark.parametrize("key", ["kl_privacy", "dp_sgld", "lp_fft", "max_information"])
def test_every_paper_with_private_images_can_take_an_own_set(atlas, key):
    specs = [atlas.specs[each] for each in atlas.ids(key)]
    blocks = [spec.fields["data"] for spec in specs if "data" in spec.fields]
    mine = [block for block in blocks if block["name"] == "my-scans"]
    assert mine
    definition = {name: SCANS[name] for name in ("classes", "image_shape", "scaling")}
    assert all(block["own"] == {**definition, "resize": False} for block in mine)
    assert all("path" not in block["own"] for block in mine)


def test_a_definition_makes_the_ids_and_its_place_and_one_that_no_paper_names_none(atlas):
    elsewhere = Atlas(config({"path": "/other/place.npz", "resize": False}))
    assert set(elsewhere.specs) == set(atlas.specs)
    assert elsewhere.data_sets == atlas.data_sets
    for change in ({"scaling": "centred"}, {"resize": True}):
        others = Atlas(config(change, on=False))
        assert set(atlas.own_sets).isdisjoint(others.own_sets)
        for key in ("kl_privacy", "dp_sgld", "max_information"):
            assert set(others.ids(key)) != set(atlas.ids(key))
    unused = Atlas(load_config(changes={"tier": "t", "data": {"own": {"my-scans": SCANS}}}))
    assert set(unused.specs) == set(atlas_of("embedded").specs) and unused.own_sets == {}
    unused.check_own_paths()


def test_sizes_follow_from_the_definition():
    definition = {"classes": ["a", "b"], "image_shape": [3, 10, 20], "scaling": "unit"}
    block = DataFields(**PRIVATE, own=definition)
    assert inputs_of(block) == 600
    assert array_mb(block) == 400 * 600 * 4 / 2**20


def test_changed_files_are_read_again(tmp_path):
    for name in SCANS["classes"]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(b"1")
    atlas = Atlas(config({"path": str(tmp_path)}))
    mine, *_ = atlas.own_sets
    before = atlas.own_state(mine)
    os.utime(tmp_path / "ill/a.png", (1, 1))
    overwritten = atlas.own_state(mine)
    assert overwritten != before
    (tmp_path / "ill/b.png").write_bytes(b"1")
    assert atlas.own_state(mine) != overwritten
    digits = next(name for name in atlas.data_sets if name.startswith("digits"))
    assert atlas.own_state(digits) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"dp_sgld": {"data": {**PRIVATE, **HELD_OUT, "name": "my-scan"}}},
            ["dp_sgld.accuracy.sets.0.data.name", "'my-scan'", "digits", "mnist", "my-scans"],
        ),
        ({"kl": {"classes": SICK}}, ["kl_privacy.data.classes", "'sick'", "healthy, ill, unsure"]),
        ({"data": {"own": {"my-scans": SCANS, "mnist": SCANS}}}, ["data.own.mnist", "another"]),
        (
            {"dp_sgld": {"features": "penultimate", "backbone": "strokes-s"}},
            ["dp_sgld.accuracy.sets.0.backbone", "64 numbers", "[1, 28, 28] of data.own.my-scans"],
        ),
        (
            {"scans": {"scaling": "centred"}},
            ["lp_fft.scenarios.0.backbone", "leaves-grey with scaling unit", "scaling centred"],
        ),
    ],
)
def test_a_wrong_config_is_one_line_with_key_found_and_allowed(changes, words):
    with pytest.raises(InputError) as caught:
        Atlas(config(**changes))
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words)
