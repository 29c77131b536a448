"""What a config may say of imported backbones, and what the paper tier says of them."""

import shlex

import pytest
import tier_atlases
import yaml

from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.published import TABLE_4
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, project_root, read_config, validate

PUBLISHED, FROM_FILE = yaml.safe_load("""
- {source: imagenet, model: imagenet-resnet18, options: {}, image_shape: [1, 224, 224]}
- {source: moco, model: moco-v2-resnet50, options: {}, image_shape: [3, 32, 32], file: moco.pth.tar}
""")
DIGITS = {"sha256": "ABCDEF01"}


def with_backbone(fields=PUBLISHED, **changes):
    """The default config with one more backbone."""
    config = read_config()
    config["pretrain"]["backbones"]["published"] = {**fields, **changes}
    config["pretrain"]["train"].append("published")
    return config


def atlas_of(config):
    return Atlas(validate(config))


def import_of(config):
    (spec,) = atlas_of(config).groups["pretrain"]["imported"]
    return spec


@pytest.fixture(scope="module")
def paper():
    return tier_atlases.atlas_of("paper")


def test_an_import_says_what_is_imported_and_no_setting_of_a_training():
    atlas = atlas_of(with_backbone())
    (spec,) = atlas.groups["pretrain"]["imported"]
    assert spec.fields == {"key": "pretrain", "kind": "imported", **PUBLISHED}
    assert spec.slug == "published"
    default = tier_atlases.atlas_of("embedded")
    assert atlas.groups["pretrain"]["backbones"] == default.groups["pretrain"]["backbones"]
    assert default.ids("pretrain", "imported") == []


def test_neither_the_seed_nor_settings_of_trainings_import_again():
    before = import_of(with_backbone()).id
    config = with_backbone()
    config["seed"] = 9
    config["pretrain"].update(epochs=3, lr=0.5)
    assert import_of(config).id == before


def test_an_import_needs_no_data_no_gpu_and_little_memory_and_no_figure_waits_for_it():
    config = with_backbone()
    config["device"] = "auto"
    atlas = atlas_of(config)
    (name,) = atlas.ids("pretrain", "imported")
    assert atlas.job(name).data == [] and atlas.job(name).device == "cpu"
    assert 500 < atlas.job(name).memory_mb < 3000
    assert not [figure for figure in atlas.figures if atlas.record(name) in atlas.behind(figure)]
    assert atlas.record(name) in atlas.all_records()


def test_where_a_file_lies_changes_no_id_and_its_checksum_does():
    spec = import_of(with_backbone(FROM_FILE))
    expected = {name: value for name, value in FROM_FILE.items() if name != "file"}
    assert spec.fields == {"key": "pretrain", "kind": "imported", **expected}
    assert import_of(with_backbone(FROM_FILE, file="/else/where.pth")).id == spec.id
    checked = import_of(with_backbone(FROM_FILE, **DIGITS))
    assert checked.fields["sha256"] == "abcdef01" and checked.id != spec.id


@pytest.mark.parametrize(
    ("fields", "changes", "file", "words"),
    [
        (PUBLISHED, {}, "resnet18-f37072fd.pth", []),
        (FROM_FILE, {"file": "x/a b'; x"}, "a b'; x", ["--weights-file=x/a b'; x", "--sha256="]),
        (FROM_FILE, DIGITS, "moco.pth.tar", ["--weights-file=moco.pth.tar", "--sha256=abcdef01"]),
    ],
)
def test_the_file_that_is_fetched_is_the_one_that_the_config_names(fields, changes, file, words):
    atlas = atlas_of(with_backbone(fields, **changes))
    ((name, path),) = atlas.weights_files.items()
    assert path.endswith(f"/weights/{name}/{file}")
    assert shlex.split(atlas.weights_arguments(name)) == ["--name", fields["model"], *words]


def test_softmax_outputs_of_a_backbone_without_a_head_are_refused():
    config = with_backbone(FROM_FILE)
    (first, *_) = config["dp_sgld"]["accuracy"]["sets"]
    takes = {**first, "backbone": "published", "features": "softmax"}
    config["dp_sgld"]["accuracy"]["sets"] = [takes]
    words = r"accuracy\.sets\.0\.features: found softmax of published"
    with pytest.raises(InputError, match=words) as caught:
        atlas_of(config)
    assert "\n" not in str(caught.value)
    takes["features"] = "penultimate"
    assert atlas_of(config).groups["dp_sgld"]["accuracy"]


@pytest.fixture
def moco_files(tmp_path):
    """The paper tier, and the example for MoCo in its comments as a file of its own."""
    tier, path = project_root() / "workflow/tiers/paper.yaml", tmp_path / "moco.yaml"
    text = tier.read_text(encoding="utf-8")
    lines = text[text.index("# tier: paper-moco") :].splitlines()
    assert all(line.startswith("# ") for line in lines)
    path.write_text("\n".join(line.removeprefix("# ") for line in lines))
    return [tier, path]


def test_the_paper_tier_s_example_for_moco_is_a_config(paper, moco_files):
    atlas = Atlas(load_config(moco_files))
    fields = [spec.fields for spec in atlas.groups["lp_fft"]["strategies"]]
    assert len(fields) == 8 and atlas.tier != paper.tier
    epochs = {share * each["steps"] / 49 for each in fields for share in each["shares"]}
    assert sorted(epochs) == pytest.approx(range(1, 10))
    models = {spec.slug: spec.fields for spec in atlas.groups["pretrain"]["imported"]}
    moco = {name: fields for name, fields in models.items() if fields["source"] == "moco"}
    assert len(moco) == 4 == len({each["scenario"] for each in fields})
    assert all(fields["model"].startswith(name[:7]) for name, fields in moco.items())


def test_a_file_of_weights_that_is_replaced_is_seen(tmp_path, moco_files):
    root = {"data": {"root": str(tmp_path), "download": True}, "tier": "mine"}
    atlas = Atlas(load_config(moco_files, root))
    ids = {spec.slug: spec.id for spec in atlas.groups["pretrain"]["imported"]}
    assert atlas.weights_state(ids["moco-v2-200"]) is None
    assert atlas.weights_state(ids["imagenet-resnet18"]) is None
    file = tmp_path / "moco-v2-200.pth.tar"
    file.write_bytes(b"one")
    before = atlas.weights_state(ids["moco-v2-200"])
    file.write_bytes(b"another")
    assert before is not None and atlas.weights_state(ids["moco-v2-200"]) != before


def test_the_paper_tier_has_the_data_networks_and_settings_of_tables_1_and_2(paper):
    specs = {
        (spec.fields["data"]["name"], spec.fields["backbone"].rpartition("-")[0]): spec.fields
        for spec in paper.groups["dp_sgld"]["accuracy"]
    }
    epochs = {
        ("cifar10", "cifar100-resnet18"): 30,
        ("cifar10", "cifar100-alexnet"): 30,
        ("pneumonia-224", "imagenet-resnet18"): 50,
    }
    assert set(specs) == set(epochs)
    for name, fields in specs.items():
        grid = paper.spec(fields["tuning"]).fields["grid"]
        assert grid["epochs"] == [epochs[name]]
        assert {1e-3, 5e-3} <= set(grid["lambda"])
        assert 128 in grid["batches"] and 0.5 in grid["step_sizes"]
        assert (fields["schedule"], fields["epsilons"], fields["delta"]) == ("both", [1.0], 1e-5)
        # Every record that is published is dealt once.
        data, counts = fields["data"], DATA_SETS[name[0]].counts
        assert data["n_train"] + data["n_validation"] == sum(counts["train"])
        assert data["n_test"] == sum(counts["test"])
    classes = {len(fields["data"]["classes"]) for fields in specs.values()}
    assert classes == {problem.classes for problem in TABLE_4}


def test_the_paper_tier_fine_tunes_the_stage_of_table_3_for_30_epochs(paper):
    from torch import nn

    from dpatlas.models.resnet import resnet18

    # A job for every run.
    fields, *others = (spec.fields for spec in paper.groups["dp_sgld"]["finetune"])
    assert all({**other, "first_run": 0} == fields for other in others)
    head, blocks = (unfrozen["trainable"] for unfrozen in fields["unfreeze"])
    assert head == ["head"] and blocks == ["layer4", "head"]
    net = resnet18()
    # As the text counts them.
    stage = [part for part in net.layer4.modules() if isinstance(part, nn.Conv2d)]
    assert len(stage) == 5 and len(net.layer4) == 2
    assert fields["steps"] == 30 * (fields["data"]["n_train"] // fields["batch"])
    assert paper.groups["pretrain"]["backbones"][0].id == fields["backbone"]
