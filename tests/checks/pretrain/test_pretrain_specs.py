"""Which backbones a config trains, what renews them, and what is refused."""

import pytest

from dpatlas.base.specs import Spec, distinct
from dpatlas_workflow.checks.pretrain import settings as pretrain
from dpatlas_workflow.checks.pretrain.cost import KINDS
from dpatlas_workflow.config.load import read_config, validate
from dpatlas_workflow.records import parse_spec

BLOCK = read_config()["pretrain"]
NAMES = BLOCK["train"]


def groups(change=lambda block: None, **general) -> dict[str, list[Spec]]:
    """Specs of the default config with a change of its block, and other general settings."""
    config = {**read_config(), **general}
    change(config["pretrain"])
    return pretrain.groups(validate(config))


@pytest.fixture(scope="module")
def default():
    return groups()


@pytest.fixture
def renewed(default):
    """Names of the specs that a change of the config gives another id, or adds."""
    before = {spec.id for specs in default.values() for spec in specs}

    def of(change=lambda block: None, **general):
        after = [spec for specs in groups(change, **general).values() for spec in specs]
        return {spec.slug for spec in after if spec.id not in before}

    return of


def test_there_is_one_training_per_backbone_by_its_source_and_one_measurement_of_all(default):
    trainings, (transfer,) = default["backbones"], default["transfer"]
    assert [spec.slug for spec in trainings] == NAMES
    assert transfer.fields["backbones"] == [spec.id for spec in trainings]
    assert len(distinct([*trainings, transfer])) == len(NAMES) + 1
    for spec in trainings:
        fields, defined = spec.fields, BLOCK["backbones"][spec.slug]
        assert fields["kind"] == "backbone" and fields["data"]["name"] == defined["source"]
        assert (fields["model"], fields["options"]) == (defined["model"], defined["options"])
        for name in ("epochs", "batch", "lr", "weight_decay", "label_smoothing"):
            assert fields[name] == BLOCK[name]


@pytest.mark.parametrize(
    ("key", "value"),
    [("options", {"pool": 4}), ("source", "fonts"), ("n_train", 1001), ("lr", 0.5)],
)
def test_a_setting_of_one_backbone_renews_it_and_the_measurement_and_no_other(renewed, key, value):
    def change(block):
        block["backbones"]["scribbles-s"][key] = value

    assert renewed(change) == {"scribbles-s", "transfer"}
    (fields,) = (spec.fields for spec in groups(change)["backbones"] if spec.slug == "scribbles-s")
    in_data = {"source": "name", "n_train": "n_train"}
    assert (fields["data"][in_data[key]] if key in in_data else fields[key]) == value


@pytest.mark.parametrize("setting", ["n_train", "lr"])
def test_a_setting_of_all_renews_every_backbone_but_one_that_has_its_own(renewed, setting):
    def change(block):
        block["backbones"]["letters-s"][setting] = block[setting]
        block[setting] = 2 * block[setting]

    assert renewed(change) == {*NAMES, "transfer"} - {"letters-s"}


@pytest.mark.parametrize(
    "change",
    [
        lambda block: block["transfer"].update(n_test=block["transfer"]["n_test"] + 1),
        lambda block: block["transfer"]["backbones"].reverse(),
    ],
)
def test_a_setting_of_the_measurement_trains_no_backbone_again(renewed, change):
    assert renewed(change) == {"transfer"}


def test_only_training_moves_to_a_gpu_and_more_images_need_more_memory(default):
    assert [kind for kind, cost in KINDS.items() if cost.gpu] == ["backbone"]
    few, many = (
        KINDS["backbone"].memory_mb(parse_spec(grouped["backbones"][0].fields, "test"))
        for grouped in (default, groups(lambda block: block.update(n_train=10**7)))
    )
    # The images that are more, as float32.
    assert few > 500 and many - few >= 4 * 64 * (10**7 - BLOCK["n_train"]) / 2**20
