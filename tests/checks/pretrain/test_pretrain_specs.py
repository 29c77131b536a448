"""What renews the backbones that a config trains, and the measurement of them."""

import pytest

from dpatlas_workflow.checks.pretrain import settings as pretrain
from dpatlas_workflow.config.load import read_config, validate

NAMES = read_config()["pretrain"]["train"]


def ids(change=lambda block: None):
    """{name: id} of the specs of the default config with a change of its block."""
    config = read_config()
    change(config["pretrain"])
    grouped = pretrain.groups(validate(config))
    return {spec.slug: spec.id for specs in grouped.values() for spec in specs}


def of_one(key, value):
    return lambda block: block["backbones"]["scribbles-s"].update({key: value})


def of_all(key):
    """A change of what all share, whose old value one backbone has of its own."""

    def change(block):
        block["backbones"]["letters-s"][key] = block[key]
        block[key] = 2 * block[key]

    return change


@pytest.mark.parametrize(
    ("change", "renewed"),
    [
        (of_one("options", {"pool": 4}), {"scribbles-s", "transfer"}),
        (of_one("source", "fonts"), {"scribbles-s", "transfer"}),
        (of_one("lr", 0.5), {"scribbles-s", "transfer"}),
        (of_all("n_train"), {*NAMES, "transfer"} - {"letters-s"}),
        (of_all("lr"), {*NAMES, "transfer"} - {"letters-s"}),
        (lambda block: block["transfer"].update(n_test=501), {"transfer"}),
        (lambda block: block["transfer"]["backbones"].reverse(), {"transfer"}),
    ],
)
def test_a_setting_renews_what_it_is_of_and_nothing_else(change, renewed):
    before, after = ids(), ids(change)
    assert before.keys() == after.keys() == {*NAMES, "transfer"}
    assert {name for name in after if after[name] != before[name]} == renewed
