"""Specs that dp_sgld's settings give, and settings that are refused."""

import re

import pytest
from pydantic import ValidationError

from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, read_config, validate
from dpatlas_workflow.papers.dp_sgld.settings import KEY, ReadingChoice

READING = {"name": "paper", "step_size": 0.5, "schedules": ["constant"], "without_l2": False}


def test_another_backbone_setting_renews_what_takes_its_features_and_nothing_else():
    config = read_config()
    config["pretrain"]["backbones"]["strokes-mlp"]["epochs"] = 9
    new = set(Atlas(validate(config)).ids(KEY)) - set(Atlas(load_config()).ids(KEY))
    named = {re.sub("(-run[0-9]+)?-[0-9a-f]{8}$", "", spec_id) for spec_id in new}
    assert {name for name in named if not name.endswith("-tuning")} == {
        *(f"protocol-fonts-{n}-strokes-mlp" for n in (1000, 4000, 16000)),
        "accuracy-fonts-strokes-mlp",
        "long-training-digits-strokes-mlp",
    }


def test_a_reading_by_its_condition_number_has_the_same_problem_at_any_norm():
    by_number = ReadingChoice.model_validate(
        {**READING, "name": "table 4", "beta_over_lambda": 55_000.0}
    ).fields
    for norm in (1.0, 10.6):
        lam = by_number(norm)["lambda"]
        assert (norm**2 / 2 + lam) / lam == pytest.approx(55_000)
    for wrong in ({}, {"lambda": 0.1, "beta_over_lambda": 10.0}):
        with pytest.raises(ValidationError, match="lambda or beta_over_lambda"):
            ReadingChoice.model_validate({**READING, **wrong})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda c: c[KEY]["accuracy"]["sets"][0].update(batches=[128, 1151]),
            "dp_sgld.accuracy.sets.0.batches: found 1151; allowed: at most n_train = 1150",
        ),
        (
            lambda c: c[KEY]["protocol"].update(batch=1001),
            "dp_sgld.protocol.sets.0.data.n_train: found 1000; allowed: >= 1001",
        ),
        (
            lambda c: c[KEY]["protocol"]["readings"][1].update(name="paper"),
            "dp_sgld.protocol.readings: found",
        ),
        (
            lambda c: c[KEY]["accuracy"]["sets"][0].update(backbone="resnet"),
            "sets.0.backbone: found 'resnet'; allowed: one of pretrain.train: strokes-s",
        ),
        (
            lambda c: c[KEY]["accuracy"]["sets"][2].update(backbone=None),
            "dp_sgld.accuracy.sets.2.backbone: found none",
        ),
        (lambda c: c["pretrain"].update(enabled=False), "pretrain.enabled: found false"),
        (lambda c: c[KEY]["utility"].update(batch=2001), "dp_sgld.utility.batch: found 2001"),
        (
            lambda c: c[KEY]["accuracy"]["grid"].update(step_sizes=[1.0]),
            "dp_sgld.accuracy.grid.step_sizes",
        ),
        (
            lambda c: c[KEY]["finetune"][0].update(relation="replace_one", accountant="rdp"),
            "dp_sgld.finetune.0.accountant: found rdp for Poisson batches under replace_one",
        ),
    ],
)
def test_settings_that_cannot_go_together_are_refused_before_any_job(change, words):
    config = read_config()
    change(config)
    with pytest.raises(InputError) as caught:
        Atlas(validate(config))
    assert words in str(caught.value)
