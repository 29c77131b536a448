"""Specs that dp_sgld's settings give; what is refused is tests/contract's."""

import re

import pytest
from pydantic import ValidationError

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
