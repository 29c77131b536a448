import pytest

from dpatlas.config.atlas import Atlas
from dpatlas.config.backbones import weights_file
from dpatlas.config.load import load_config, load_tier, project_root, read_config, validate
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas.papers.dp_sgld.formulas.published import TABLE_4

PUBLISHED = {
    "source": "imagenet",
    "model": "imagenet-resnet18",
    "options": {},
    "image_shape": [1, 224, 224],
}
NAMED = {
    "source": "moco",
    "model": "moco-v2-resnet50",
    "options": {},
    "image_shape": [3, 32, 32],
    "file": "moco.pth.tar",
}


def with_imported(published=PUBLISHED, **changes):
    config = read_config()
    config["pretrain"]["backbones"]["published"] = {**published, **changes}
    config["pretrain"]["train"].append("published")
    return config


def atlas_of(config):
    return Atlas(validate(config))


def refused(config) -> str:
    with pytest.raises(InputError) as caught:
        atlas_of(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def paper():
    return Atlas(load_tier("paper"))


def test_an_import_says_what_is_imported_and_no_setting_of_a_training():
    atlas = atlas_of(with_imported())
    (spec,) = atlas.groups["pretrain"]["imported"]
    assert spec.fields == {"key": "pretrain", "kind": "imported", **PUBLISHED}
    assert spec.slug == "published"
    assert (
        atlas.groups["pretrain"]["backbones"]
        == Atlas(load_config()).groups["pretrain"]["backbones"]
    )


def test_neither_the_seed_nor_settings_of_trainings_import_again():
    before = atlas_of(with_imported()).ids("pretrain", "imported")
    config = with_imported()
    config["seed"] = 9
    config["pretrain"].update(epochs=3, lr=0.5)
    assert atlas_of(config).ids("pretrain", "imported") == before
    assert atlas_of(with_imported(image_shape=[1, 28, 28])).ids("pretrain", "imported") != before


def test_it_needs_no_data_set_no_gpu_and_little_memory():
    config = with_imported()
    config["device"] = "auto"
    atlas = atlas_of(config)
    (name,) = atlas.ids("pretrain", "imported")
    assert atlas.data_manifest(name) == [] and atlas.device(name) == "cpu"
    assert 500 < atlas.memory_mb(name) < 3000


def test_no_figure_waits_for_an_import():
    atlas = atlas_of(with_imported())
    (name,) = atlas.ids("pretrain", "imported")
    assert not [figure for figure in atlas.figures if atlas.record(name) in atlas.behind(figure)]
    assert atlas.record(name) in atlas.all_records()


def test_the_tiers_without_imports_have_none():
    for tier in ("embedded", "smoke", "workstation"):
        assert Atlas(load_tier(tier)).ids("pretrain", "imported") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epochs": 3}, "backbones.published.epochs: found 3; allowed: source, model, options"),
        ({"declared_public": "for this test"}, "backbones.published.declared_public"),
        ({"model": "resnet18"}, "published.model: found resnet18; allowed: imagenet-resnet18"),
        ({"source": "strokes"}, "published.source: found strokes; allowed: imagenet"),
        (
            {"source": "strokes", "model": "mlp"},
            "published.image_shape: found [1, 224, 224]; allowed: nothing",
        ),
    ],
)
def test_settings_that_say_nothing_about_a_backbone_are_refused(changes, words):
    assert words in refused(with_imported(**changes))


def test_an_import_without_a_shape_is_refused():
    config = with_imported()
    del config["pretrain"]["backbones"]["published"]["image_shape"]
    assert "published.image_shape: found nothing" in refused(config)


@pytest.mark.parametrize(
    ("shape", "words"),
    [("[1, 224]", "at least 3"), ("[1, 224, 0]", ">= 1"), ("[1, 2, 3, 4]", "at most 3")],
)
def test_a_shape_has_three_numbers(tmp_path, shape, words):
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "pretrain: {backbones: {published: {source: imagenet, model: imagenet-resnet18, "
        f"options: {{}}, image_shape: {shape}}}}}}}"
    )
    with pytest.raises(InputError, match="image_shape") as caught:
        load_config([path])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [("{widths: .inf}", "inf"), ("{widths: [8, .nan]}", "nan"), ("{pool: 0}", ">= 1")],
)
def test_an_option_of_a_network_is_a_whole_number_or_a_list_of_them(tmp_path, options, words):
    path = tmp_path / "wrong.yaml"
    path.write_text(f"pretrain: {{backbones: {{strokes-mlp: {{options: {options}}}}}}}")
    with pytest.raises(InputError, match=r"strokes-mlp\.options") as caught:
        load_config([path])
    assert words in str(caught.value)


def moco_spec(**changes):
    (spec,) = atlas_of(with_imported(NAMED, **changes)).groups["pretrain"]["imported"]
    return spec


def test_where_a_file_lies_changes_no_id_and_its_checksum_does():
    spec = moco_spec(sha256=None)
    expected = {name: value for name, value in NAMED.items() if name != "file"}
    assert spec.fields == {"key": "pretrain", "kind": "imported", **expected}
    assert moco_spec(file="/else/where.pth").id == moco_spec().id == spec.id
    checked = moco_spec(sha256="ABCDEF01")
    assert checked.fields["sha256"] == "abcdef01" and checked.id != spec.id


def test_a_job_is_told_the_file_that_the_config_names():
    config = with_imported(NAMED, file="a b'; x")
    (spec,) = atlas_of(config).groups["pretrain"]["imported"]
    assert weights_file(validate(config), spec) == "a b'; x"
    other = with_imported()
    (spec,) = atlas_of(other).groups["pretrain"]["imported"]
    assert weights_file(validate(other), spec) == ""


@pytest.mark.parametrize(
    ("published", "changes", "words"),
    [
        (NAMED, {"model": "imagenet-resnet50"}, "allowed: moco-v2-resnet50, moco-v3-resnet50"),
        (NAMED, {"epochs": 3}, "allowed: source, model, options, image_shape, file, sha256"),
        (PUBLISHED, {"model": "moco-v2-resnet50"}, "published.model: found moco-v2-resnet50"),
        (PUBLISHED, {"file": "x.pth"}, "backbones.published.file: found x.pth"),
        (PUBLISHED, {"sha256": "0" * 8}, "backbones.published.sha256"),
        (
            {"source": "strokes", "model": "mlp", "options": {}, "file": "x.pth"},
            {},
            "published.file: found x.pth; allowed: nothing",
        ),
    ],
)
def test_only_weights_without_an_address_are_named_by_a_file(published, changes, words):
    assert words in refused(with_imported(published, **changes))


def test_weights_without_an_address_need_a_file():
    config = with_imported(NAMED)
    del config["pretrain"]["backbones"]["published"]["file"]
    assert "published.file: found nothing; allowed: path of a checkpoint" in refused(config)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sha256: 12345678", "sha256"),
        ("sha256: '1234567'", "sha256"),
        ("sha256: 'ghijklmn'", "sha256"),
        ("file: ''", "file"),
        ('file: "a\\nb"', "file"),
    ],
)
def test_a_checksum_is_hex_text_and_a_file_has_a_name(tmp_path, line, words):
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "pretrain: {backbones: {published: {source: moco, model: moco-v2-resnet50, "
        f"options: {{}}, {line}}}}}}}"
    )
    with pytest.raises(InputError, match=rf"published\.{words}"):
        load_config([path])


def test_softmax_outputs_of_a_backbone_without_a_head_are_refused():
    config = with_imported(NAMED)
    (chosen, *_) = config["dp_sgld"]["accuracy"]["sets"]
    config["dp_sgld"]["accuracy"]["sets"] = [
        {**chosen, "backbone": "published", "features": "softmax"}
    ]
    assert "accuracy.sets.0.features: found softmax of published" in refused(config)
    config["dp_sgld"]["accuracy"]["sets"][0]["features"] = "penultimate"
    assert atlas_of(config).groups["dp_sgld"]["accuracy"]


def test_the_paper_tier_s_example_for_moco_is_a_config(paper, tmp_path):
    text = (project_root() / "workflow/tiers/paper.yaml").read_text(encoding="utf-8")
    lines = text[text.index("# tier: paper-moco") :].splitlines()
    assert all(line.startswith("# ") for line in lines)
    path = tmp_path / "moco.yaml"
    path.write_text("\n".join(line.removeprefix("# ") for line in lines))
    atlas = Atlas(load_config([project_root() / "workflow/tiers/paper.yaml", path]))
    fields = [spec.fields for spec in atlas.groups["lp_fft"]["strategies"]]
    assert len(fields) == 8 and atlas.tier != paper.tier
    epochs = {share * each["steps"] / 49 for each in fields for share in each["shares"]}
    assert sorted(epochs) == pytest.approx(range(1, 10))
    models = {spec.slug: spec.fields for spec in atlas.groups["pretrain"]["imported"]}
    moco = {name: fields for name, fields in models.items() if fields["source"] == "moco"}
    assert len(moco) == 4 == len({each["scenario"] for each in fields})
    assert all(fields["model"].startswith(name[:7]) for name, fields in moco.items())


def test_the_paper_tier_has_the_data_networks_and_settings_of_tables_1_and_2(paper):
    found = {
        (spec.fields["data"]["name"], spec.fields["backbone"].rpartition("-")[0]): spec.fields
        for spec in paper.groups["dp_sgld"]["accuracy"]
    }
    photographs, small, xrays = (
        found["cifar10", "cifar100-resnet18"],
        found["cifar10", "cifar100-alexnet"],
        found["pneumonia-224", "imagenet-resnet18"],
    )
    assert len(found) == 3
    for fields, epochs in ((photographs, 30), (small, 30), (xrays, 50)):
        assert fields["grid"]["epochs"] == [epochs]
        assert {1e-3, 5e-3} <= set(fields["grid"]["lambda"])
        assert (fields["batch"], fields["runs"], fields["schedule"]) == (128, 5, "both")
        assert (fields["epsilons"], fields["delta"], fields["step_size"]) == ([1.0], 1e-5, 0.5)
    assert {len(fields["data"]["classes"]) for fields in found.values()} == {
        problem.classes for problem in TABLE_4
    }


def test_the_paper_tier_deals_every_record_that_is_published_once(paper):
    for spec in paper.groups["dp_sgld"]["accuracy"]:
        data = spec.fields["data"]
        counts = DATA_SETS[data["name"]].counts
        assert data["n_train"] + data["n_validation"] == sum(counts["train"])
        assert data["n_test"] == sum(counts["test"])


def test_the_paper_tier_trains_its_backbones_on_all_of_cifar_100(paper):
    specs = paper.groups["pretrain"]["backbones"]
    trained = {spec.slug: spec.fields for spec in specs if spec.slug.startswith("cifar100")}
    assert {name: fields["model"] for name, fields in trained.items()} == {
        "cifar100-resnet18": "resnet18",
        "cifar100-alexnet": "alexnet",
    }
    for fields in trained.values():
        assert fields["data"] == {"name": "cifar100", "n_train": 50000, "n_test": 10000, "n_add": 0}
        assert "disjoint from CIFAR-10" in fields["declared_public"]
    imported = next(
        spec for spec in paper.groups["pretrain"]["imported"] if spec.slug == "imagenet-resnet18"
    )
    assert tuple(imported.fields["image_shape"]) == DATA_SETS["pneumonia-224"].image_shape


def test_the_paper_tier_fine_tunes_the_stage_of_table_3_for_30_epochs(paper):
    from torch import nn

    from dpatlas.models.resnet import resnet18

    (spec,) = paper.groups["dp_sgld"]["finetune"]
    fields = spec.fields
    head, blocks = (each["trainable"] for each in fields["unfreeze"])
    assert head == ["head"] and blocks == ["layer4", "head"]
    net = resnet18()
    # As the text counts them.
    stage = [part for part in net.layer4.modules() if isinstance(part, nn.Conv2d)]
    assert len(stage) == 5 and len(net.layer4) == 2
    assert fields["steps"] == 30 * (fields["data"]["n_train"] // fields["batch"])
    assert paper.groups["pretrain"]["backbones"][0].id == fields["backbone"]
