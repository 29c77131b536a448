"""Specs that dp_sgld's settings give, and that no grid of a published tuning was too narrow."""

import re

import pandas as pd
import pytest
from pydantic import ValidationError

from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, project_root, read_config, validate
from dpatlas_workflow.papers.dp_sgld.settings import KEY, ReadingChoice

READING = {"name": "paper", "step_size": 0.5, "schedules": ["constant"], "without_l2": False}
SAME = ["table", "data", "features", "backbone", "n_train", "method", "epsilon"]
POINT = 0.01


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
    given = {**READING, "beta_over_lambda": 55_000.0}
    for norm in (1.0, 10.6):
        lam = ReadingChoice.model_validate(given).fields(norm)["lambda"]
        assert (norm**2 / 2 + lam) / lam == pytest.approx(55_000)
    for wrong in (READING, {**given, "lambda": 0.1}):
        with pytest.raises(ValidationError, match="lambda or beta_over_lambda"):
            ReadingChoice.model_validate(wrong)


def test_no_tuned_arm_is_a_point_behind_an_untuned_reading_of_its_table():
    paths = (project_root() / "docs/results").rglob("tables/sgld_accuracy_*.csv")
    rows = pd.concat([pd.read_csv(path).assign(table=str(path)) for path in paths])
    readings = rows[rows.protocol == "paper"].groupby(SAME, dropna=False).accuracy_mean.max()
    # The readings have the published accounting, which is that of No DP too.
    published = rows.comparison.fillna("published") == "published"
    tuned = rows[(rows.protocol == "tuned") & published]
    pairs = tuned.merge(readings.rename("of_reading"), on=SAME)
    assert set(pairs.method) == {"dp-sgld", "dp-sgd", "no-dp"}
    assert (pairs.of_reading - pairs.accuracy_mean).max() < POINT
