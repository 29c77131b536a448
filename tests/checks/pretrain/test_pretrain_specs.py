"""Which backbones a config trains, what renews them, and what is refused."""

import copy
from types import SimpleNamespace

import pytest

from dpatlas.checks.pretrain import settings as pretrain
from dpatlas.checks.pretrain.cost import KINDS
from dpatlas.config.backbones import backbone_spec
from dpatlas.config.model import validated
from dpatlas.core.specs import Spec, distinct
from dpatlas.errors import InputError
from dpatlas.records import parse_spec

CONFIG = {
    "seed": 2,
    "noise_source": "keyed",
    "pretrain": {
        "n_train": 1000,
        "n_test": 200,
        "epochs": 3,
        "batch": 100,
        "lr": 3e-3,
        "weight_decay": 1e-2,
        "label_smoothing": 0.05,
        "train": ["pen", "wide-pen", "type"],
        "backbones": {
            "pen": {"source": "strokes", "model": "small-cnn-s", "options": {}},
            "wide-pen": {"source": "strokes", "model": "mlp", "options": {"widths": [8, 6]}},
            "type": {"source": "letters", "model": "small-cnn-t", "options": {"pool": 2}},
        },
        "transfer": {
            "data": {"name": "digits", "classes": list(range(10)), "n_train": 1797},
            "backbones": ["pen", "wide-pen", "type"],
            "n_test": 500,
            "splits": 5,
            "neighbours": 20,
        },
    },
}
NAMES = CONFIG["pretrain"]["train"]


def groups(change=lambda block: None, **general) -> dict[str, list[Spec]]:
    """Specs of the config with a change of its block, and other general settings."""
    config = {**copy.deepcopy(CONFIG), **general}
    change(config["pretrain"])
    return pretrain.groups(typed(config))


def typed(config):
    """The part of a config that the block reads, as models."""
    block = validated(pretrain.Settings, {"enabled": True, **config["pretrain"]}, place="pretrain.")
    return SimpleNamespace(**{**config, "pretrain": block})


def renewed(change=lambda block: None, **general) -> set[str]:
    """Names of the specs that a change of the config gives another id, or adds."""
    before, after = (
        {spec.id: spec.slug for specs in grouped.values() for spec in specs}
        for grouped in (groups(), groups(change, **general))
    )
    return {name for spec_id, name in after.items() if spec_id not in before}


def test_there_is_one_training_per_backbone_by_its_source_and_one_measurement_of_all():
    grouped = groups()
    trainings, (transfer,) = grouped["backbones"], grouped["transfer"]
    assert [spec.slug for spec in trainings] == NAMES
    assert {spec.fields["kind"] for spec in trainings} == {"backbone"}
    assert transfer.fields["kind"] == "transfer"
    assert transfer.fields["backbones"] == [spec.id for spec in trainings]
    assert len(distinct([*trainings, transfer])) == 4
    sources = [spec.fields["data"]["name"] for spec in trainings]
    assert sources == ["strokes", "strokes", "letters"]
    wide = trainings[1].fields
    assert (wide["model"], wide["options"]) == ("mlp", {"widths": [8, 6]})
    for fields in (spec.fields for spec in trainings):
        assert (fields["data"]["n_train"], fields["data"]["n_test"]) == (1000, 200)
        assert (fields["epochs"], fields["batch"], fields["lr"]) == (3, 100, 3e-3)
        assert (fields["weight_decay"], fields["label_smoothing"]) == (1e-2, 0.05)
        assert fields["seed"] == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("options", {"pool": 4}),
        ("model", "small-cnn-xs"),
        ("source", "scribbles"),
        ("n_train", 1001),
        ("lr", 0.5),
    ],
)
def test_a_setting_of_one_backbone_renews_it_and_the_measurement_and_no_other(name, key, value):
    def change(block):
        block["backbones"][name][key] = value

    assert renewed(change) == {name, "transfer"}
    (fields,) = (spec.fields for spec in groups(change)["backbones"] if spec.slug == name)
    in_data = {"source": "name", "n_train": "n_train"}
    assert (fields["data"][in_data[key]] if key in in_data else fields[key]) == value


@pytest.mark.parametrize("setting", ["n_train", "epochs", "lr"])
def test_a_setting_of_all_renews_every_backbone_but_one_that_has_its_own(setting):
    def change(block):
        block["backbones"]["type"][setting] = block[setting]
        block[setting] = 2 * block[setting]

    assert renewed(change) == {"pen", "wide-pen", "transfer"}


def test_one_backbone_less_changes_no_other_training():
    def drop(block):
        block["train"].remove("pen")
        block["transfer"]["backbones"].remove("pen")

    assert renewed(drop) == {"transfer"}
    assert groups(drop)["backbones"] == groups()["backbones"][1:]


@pytest.mark.parametrize("setting", ["splits", "n_test", "neighbours"])
def test_a_setting_of_the_measurement_trains_no_backbone_again(setting):
    def change(block):
        block["transfer"][setting] += 1

    assert renewed(change) == {"transfer"}
    assert renewed(lambda block: block["transfer"]["backbones"].reverse()) == {"transfer"}


def test_the_seed_renews_everything_the_noise_s_source_nothing_and_1_means_1_0():
    assert renewed(seed=3) == {*NAMES, "transfer"}
    assert renewed(noise_source="os") == set()
    whole, real = (groups(lambda block, rate=rate: block.update(lr=rate)) for rate in (1, 1.0))
    assert whole == real


def test_only_training_moves_to_a_gpu_and_more_images_need_more_memory():
    assert [kind for kind, cost in KINDS.items() if cost.gpu] == ["backbone"]
    few, many = (
        KINDS["backbone"].memory_mb(parse_spec(grouped["backbones"][0].fields, "test"))
        for grouped in (groups(), groups(lambda block: block.update(n_train=10**7)))
    )
    # The images that are more, as float32.
    assert few > 500 and many - few >= 4 * 64 * (10**7 - 1000) / 2**20


UNKNOWN = "found 'resnet'; allowed: one of pretrain"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda block: block["train"].append("resnet"), f"{UNKNOWN}.backbones: pen, wide-pen"),
        (lambda block: block["transfer"]["backbones"].append("resnet"), f"{UNKNOWN}.train: pen"),
        (lambda block: block["train"].remove("type"), "'type'; allowed: one of pretrain.train"),
        (lambda block: block["transfer"]["data"].update(n_train=1798), "data: found 1798 records"),
    ],
)
def test_what_names_no_trained_backbone_or_more_records_than_there_are_is_refused(change, words):
    with pytest.raises(InputError, match=words) as caught:
        groups(change)
    assert "\n" not in str(caught.value)


def test_a_paper_cannot_take_a_backbone_that_the_config_does_not_define():
    with pytest.raises(InputError, match="backbone: found 'resnet'; allowed: one of pen, wide-pen"):
        backbone_spec(typed(CONFIG), "resnet")
