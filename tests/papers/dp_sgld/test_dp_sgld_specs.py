"""Specs that dp_sgld's settings give, and that no grid of a published tuning was too narrow."""

import csv
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, project_root, read_config, validate
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


TABLES = sorted((project_root() / "docs/results").rglob("tables/sgld_accuracy_*.csv"))
SAME = ("data", "features", "backbone", "n_train", "method", "epsilon")
POINT = 0.01


def behind(rows: list[dict[str, str]]) -> list[str]:
    """Tuned arms more than a point below a reading of the same method, records and epsilon."""
    readings: dict[tuple[str, ...], float] = {}
    for row in rows:
        if row["protocol"] == "paper":
            key, mean = tuple(row[name] for name in SAME), float(row["accuracy_mean"])
            readings[key] = max(mean, readings.get(key, 0.0))
    found = []
    for row in rows:
        key = tuple(row[name] for name in SAME)
        # The readings have the published accounting, which is that of No DP too.
        if row["protocol"] == "tuned" and row["comparison"] in ("published", ""):
            gap = readings.get(key, 0.0) - float(row["accuracy_mean"])
            if gap > POINT:
                found.append(f"{' '.join(key)}: {gap:.4f} behind")
    return found


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_no_tuned_arm_is_a_point_behind_an_untuned_reading(path: Path):
    with path.open() as stream:
        assert behind(list(csv.DictReader(stream))) == []


def test_a_narrow_grid_is_seen():
    values = ("cifar10", "penultimate", "leaves", "45000", "dp-sgld", "1.0")
    same = dict(zip(SAME, values, strict=True))
    reading = same | {"protocol": "paper", "comparison": "", "accuracy_mean": "0.3109"}
    tuned = same | {"protocol": "tuned", "comparison": "published", "accuracy_mean": "0.2290"}
    assert len(behind([reading, tuned])) == 1
    assert not behind([reading, tuned | {"accuracy_mean": "0.302"}])
    assert not behind([reading, tuned | {"method": "dp-sgd"}])
