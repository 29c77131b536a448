"""No published tuned arm is behind settings that nobody tuned: its grid was then too narrow."""

import csv
from pathlib import Path

import pytest

from dpatlas_workflow.config.load import project_root

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
