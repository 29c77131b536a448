"""What a config may say of imported backbones, and what the paper tier says of them."""

import shlex

import pytest
import tier_atlases
import yaml

from dpatlas.data.registry import DATA_SETS
from dpatlas.formulas.dp_sgld.published import TABLE_4
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, project_root, read_config, validate

PUBLISHED, FROM_FILE = yaml.safe_load("""
- {source: imagenet, model: imagenet-resnet18, options: {}, image_shape: [1, 224, 224]}
- {source: moco, model: moco-v2-resnet50, options: {}, image_shape: [3, 32, 32], file: moco.pth.tar}
""")
DIGITS = {"sha256": "ABCDEF01"}


def atlas_of(fields=PUBLISHED, pretrain=None, **general):
    """The default config with one more backbone, and changes of its block and of the rest."""
    config = {**read_config(), **general}
    config["pretrain"] |= pretrain or {}
    config["pretrain"]["backbones"]["published"] = fields
    config["pretrain"]["train"].append("published")
    return Atlas(validate(config))


def import_of(fields=PUBLISHED, **changes):
    (spec,) = atlas_of(fields, **changes).groups["pretrain"]["imported"]
    return spec


@pytest.fixture(scope="module")
def paper():
    return tier_atlases.atlas_of("paper")


def test_an_import_is_told_by_its_source_and_checksum_alone():
    """Neither the seed, nor settings of trainings, nor the place of a file import again."""
    spec = import_of()
    assert spec.fields == {"key": "pretrain", "kind": "imported", **PUBLISHED}
    assert import_of(seed=9, pretrain={"epochs": 3, "lr": 0.5}).id == spec.id
    spec = import_of(FROM_FILE)
    expected = {name: value for name, value in FROM_FILE.items() if name != "file"}
    assert spec.fields == {"key": "pretrain", "kind": "imported", **expected}
    assert import_of({**FROM_FILE, "file": "/else/where.pth"}).id == spec.id
    checked = import_of({**FROM_FILE, **DIGITS})
    assert checked.fields["sha256"] == "abcdef01" and checked.id != spec.id


def test_an_import_needs_no_data_no_gpu_and_little_memory_and_no_figure_waits_for_it():
    atlas = atlas_of(device="auto")
    (name,) = atlas.ids("pretrain", "imported")
    assert atlas.job(name).data == [] and atlas.job(name).device == "cpu"
    assert 500 < atlas.job(name).memory_mb < 3000
    assert not [figure for figure in atlas.figures if atlas.record(name) in atlas.behind(figure)]
    assert atlas.record(name) in atlas.all_records()
    for trained in atlas.ids("pretrain", "backbones"):
        assert atlas.job(trained).device == "auto"


@pytest.mark.parametrize(
    ("fields", "file", "words"),
    [
        (PUBLISHED, "resnet18-f37072fd.pth", []),
        (
            {**FROM_FILE, "file": "x/a b'; x"},
            "a b'; x",
            ["--weights-file=x/a b'; x", "--sha256="],
        ),
        (
            {**FROM_FILE, **DIGITS},
            "moco.pth.tar",
            ["--weights-file=moco.pth.tar", "--sha256=abcdef01"],
        ),
    ],
)
def test_the_file_that_is_fetched_is_the_one_that_the_config_names(fields, file, words):
    atlas = atlas_of(fields)
    ((name, path),) = atlas.weights_files.items()
    assert path.endswith(f"/weights/{name}/{file}")
    assert shlex.split(atlas.weights_arguments(name)) == ["--name", fields["model"], *words]


def test_the_paper_tier_s_example_for_moco_is_a_config_and_sees_a_file_that_is_replaced(
    paper, tmp_path
):
    """The example stands in comments of the tier."""
    tier, path = project_root() / "workflow/tiers/paper.yaml", tmp_path / "moco.yaml"
    text = tier.read_text(encoding="utf-8")
    lines = text[text.index("# tier: paper-moco") :].splitlines()
    assert all(line.startswith("# ") for line in lines)
    path.write_text("\n".join(line.removeprefix("# ") for line in lines))
    atlas = Atlas(load_config([tier, path], {"data": {"root": str(tmp_path), "download": True}}))
    assert atlas.tier != paper.tier
    fields = [spec.fields for spec in atlas.groups["lp_fft"]["strategies"]]
    epochs = {share * each["steps"] / 49 for each in fields for share in each["shares"]}
    assert sorted(epochs) == pytest.approx(range(1, 10))
    imports = {spec.slug: spec for spec in atlas.groups["pretrain"]["imported"]}
    moco = {name: spec for name, spec in imports.items() if spec.fields["source"] == "moco"}
    assert len(moco) == 4 == len({each["scenario"] for each in fields})
    assert all(spec.fields["model"].startswith(name[:7]) for name, spec in moco.items())
    name = imports["moco-v2-200"].id
    states = [atlas.weights_state(name), atlas.weights_state(imports["imagenet-resnet18"].id)]
    assert states == [None, None]
    for content in (b"one", b"another"):
        (tmp_path / "moco-v2-200.pth.tar").write_bytes(content)
        states.append(atlas.weights_state(name))
    assert None is not states[2] != states[3]


def test_the_paper_tier_has_the_data_networks_and_settings_of_tables_1_and_2(paper):
    epochs = {
        ("cifar10", "cifar100-resnet18"): 30,
        ("cifar10", "cifar100-alexnet"): 30,
        ("pneumonia-224", "imagenet-resnet18"): 50,
    }
    sets = [spec.fields for spec in paper.groups["dp_sgld"]["accuracy"]]
    found = {}
    for fields in sets:
        data, counts = fields["data"], DATA_SETS[fields["data"]["name"]].counts
        grid = paper.spec(fields["tuning"]).fields["grid"]
        (found[data["name"], fields["backbone"].rpartition("-")[0]],) = grid["epochs"]
        assert {1e-3, 5e-3} <= set(grid["lambda"])
        assert 128 in grid["batches"] and 0.5 in grid["step_sizes"]
        assert (fields["schedule"], fields["epsilons"], fields["delta"]) == ("both", [1.0], 1e-5)
        # Every record that is published is dealt once.
        assert data["n_train"] + data["n_validation"] == sum(counts["train"])
        assert data["n_test"] == sum(counts["test"])
    assert found == epochs
    classes = {len(fields["data"]["classes"]) for fields in sets}
    assert classes == {problem.classes for problem in TABLE_4}


def test_the_paper_tier_fine_tunes_the_stage_of_table_3_for_30_epochs(paper):
    # A job for every run.
    fields, *others = (spec.fields for spec in paper.groups["dp_sgld"]["finetune"])
    assert all({**other, "first_run": 0} == fields for other in others)
    trainable = [unfrozen["trainable"] for unfrozen in fields["unfreeze"]]
    assert trainable == [["head"], ["layer4", "head"]]
    assert fields["steps"] == 30 * (fields["data"]["n_train"] // fields["batch"])
    assert paper.groups["pretrain"]["backbones"][0].id == fields["backbone"]
