import copy
from types import SimpleNamespace

import pytest

from dpatlas.checks.pretrain import settings as pretrain
from dpatlas.checks.pretrain.cost import KINDS
from dpatlas.checks.pretrain.products import PRODUCTS
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


def groups(change=lambda config: None) -> dict[str, list[Spec]]:
    config = copy.deepcopy(CONFIG)
    change(config)
    return pretrain.groups(typed(config))


def typed(config):
    """The part of a config that the block reads, as models."""
    block = validated(pretrain.Settings, {"enabled": True, **config["pretrain"]}, place="pretrain.")
    return SimpleNamespace(**{**config, "pretrain": block})


def renewed(change) -> set[str]:
    """Names of the specs that a change of the config gives another id, or adds."""
    before, after = (
        {spec.id: spec.slug for specs in found.values() for spec in specs}
        for found in (groups(), groups(change))
    )
    return {name for spec_id, name in after.items() if spec_id not in before}


def refused(change) -> str:
    with pytest.raises(InputError) as caught:
        groups(change)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_there_is_one_training_per_backbone_and_one_measurement():
    found = groups()
    assert [spec.slug for spec in found["backbones"]] == NAMES
    (transfer,) = found["transfer"]
    specs = [*found["backbones"], transfer]
    assert [spec.fields["kind"] for spec in specs] == ["backbone"] * 3 + ["transfer"]
    assert {spec.key for spec in specs} == {"pretrain"}
    assert len(distinct(specs)) == 4
    assert {name for product in PRODUCTS for name in product.needs} <= set(found)


def test_a_backbone_is_trained_on_its_own_source_by_the_settings_of_all():
    pen, wide, kind = (spec.fields for spec in groups()["backbones"])
    assert [spec["data"]["name"] for spec in (pen, wide, kind)] == ["strokes", "strokes", "letters"]
    assert (wide["model"], wide["options"]) == ("mlp", {"widths": [8, 6]})
    for spec in (pen, wide, kind):
        assert (spec["data"]["n_train"], spec["data"]["n_test"]) == (1000, 200)
        assert (spec["epochs"], spec["batch"], spec["lr"]) == (3, 100, 3e-3)
        assert (spec["weight_decay"], spec["label_smoothing"], spec["seed"]) == (1e-2, 0.05, 2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "own",
    [
        {"options": {"pool": 4}},
        {"model": "small-cnn-xs"},
        {"source": "scribbles"},
        {"epochs": 9},
        {"n_train": 1001},
        {"lr": 0.5},
    ],
    ids=lambda own: next(iter(own)),
)
def test_a_setting_of_one_backbone_renews_it_and_the_measurement_and_no_other(name, own):
    def change(config):
        config["pretrain"]["backbones"][name].update(own)

    assert renewed(change) == {name, "transfer"}
    (spec,) = (spec for spec in groups(change)["backbones"] if spec.slug == name)
    ((key, value),) = own.items()
    place = {"source": ("data", "name"), "n_train": ("data", "n_train")}.get(key, (key,))
    found = spec.fields
    for part in place:
        found = found[part]
    assert found == value


@pytest.mark.parametrize(
    "setting",
    ["n_train", "n_test", "epochs", "batch", "lr", "weight_decay", "label_smoothing"],
)
def test_a_setting_of_all_renews_every_backbone_but_one_that_has_its_own(setting):
    block = CONFIG["pretrain"]

    def change(config):
        config["pretrain"]["backbones"]["type"][setting] = block[setting]
        config["pretrain"][setting] = 2 * block[setting]

    assert renewed(change) == {"pen", "wide-pen", "transfer"}


def test_one_backbone_less_changes_no_other_training():
    def drop(config):
        config["pretrain"]["train"].remove("pen")
        config["pretrain"]["transfer"]["backbones"].remove("pen")

    assert renewed(drop) == {"transfer"}
    assert groups(drop)["backbones"] == groups()["backbones"][1:]


def test_the_measurement_names_every_backbone_in_order():
    found = groups()
    (transfer,) = found["transfer"]
    assert transfer.fields["backbones"] == [spec.id for spec in found["backbones"]]
    other = groups(lambda config: config["pretrain"]["transfer"]["backbones"].reverse())
    assert other["transfer"][0].fields["backbones"] == transfer.fields["backbones"][::-1]
    assert other["backbones"] == found["backbones"]


@pytest.mark.parametrize("setting", ["splits", "n_test", "neighbours"])
def test_a_setting_of_the_measurement_trains_no_backbone_again(setting):
    def change(config):
        config["pretrain"]["transfer"][setting] += 1

    assert renewed(change) == {"transfer"}
    expected = CONFIG["pretrain"]["transfer"][setting] + 1
    assert groups(change)["transfer"][0].fields[setting] == expected


def test_another_seed_renews_everything_and_the_source_of_private_noise_nothing():
    assert renewed(lambda config: config.update(seed=3)) == {*NAMES, "transfer"}
    assert renewed(lambda config: config.update(noise_source="os")) == set()


def test_a_rate_means_the_same_as_a_whole_number_and_with_a_point():
    whole, real = (
        groups(lambda config, value=value: config["pretrain"].update(lr=value, weight_decay=value))
        for value in (1, 1.0)
    )
    assert whole == real


def test_only_training_moves_to_a_gpu():
    assert [kind for kind, cost in KINDS.items() if cost.gpu] == ["backbone"]


def test_more_images_need_more_memory():
    def ten_million(config):
        config["pretrain"]["n_train"] = 10**7

    few, many = (
        KINDS["backbone"].memory_mb(parse_spec(found["backbones"][0].fields, "test"))
        for found in (groups(), groups(ten_million))
    )
    # The images that are more, as float32.
    assert few > 500 and many - few >= 4 * 64 * (10**7 - 1000) / 2**20


def test_a_name_that_no_backbone_has_is_refused_in_one_line():
    with pytest.raises(InputError) as caught:
        backbone_spec(typed(CONFIG), "resnet")
    words = "backbone: found 'resnet'; allowed: one of pen, wide-pen, type"
    assert str(caught.value) == words
    for place, known, change in (
        ("train", "backbones", lambda block: block["train"].append("resnet")),
        (
            "transfer.backbones",
            "train",
            lambda block: block["transfer"]["backbones"].append("resnet"),
        ),
    ):
        message = refused(lambda config, change=change: change(config["pretrain"]))
        assert message.startswith(f"pretrain.{place}.")
        assert f"found 'resnet'; allowed: one of pretrain.{known}: pen, wide-pen, type" in message


def test_a_backbone_that_is_not_trained_cannot_be_measured():
    message = refused(lambda config: config["pretrain"]["train"].remove("type"))
    assert "'type'" in message and "pretrain.train" in message


def test_more_records_than_the_measured_data_have_are_refused():
    def too_many(config):
        config["pretrain"]["transfer"]["data"]["n_train"] = 1798

    assert "pretrain.transfer.data: found 1798 records" in refused(too_many)
