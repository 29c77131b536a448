"""dp_sgld's own protocol: equal steps, epochs and L2 term, and what each method adds to them."""

import json
import math

import numpy as np
import pytest
from sgld_small import PROTOCOL, arms_in, metrics_of, run, spec_of

from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.theorems import claimed_epsilon_decreasing
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.optimizers import SGD

# Accounting for batches without replacement takes seconds a calibration.
pytestmark = pytest.mark.slow
FIRST = PROTOCOL["readings"][0]


def test_every_reading_has_every_method_with_its_steps_and_noise(data, tmp_path):
    """DP-SGLD's noise counts epochs, and DP-SGD's every step."""
    rows = arms_in(metrics_of(spec_of("protocol"), data, tmp_path))
    of_paper = [("dp-sgld", None), ("dp-sgd", 0.03), ("dp-sgd", 0.0), ("no-dp", 0.03)]
    of_code = [of_paper[0], of_paper[1], of_paper[3]]
    found = [(row["method"], row.get("weight_decay")) for row in rows]
    assert found == [*of_paper, *of_paper, *of_code]
    beta = 0.53
    for row in rows:
        share = 0.99 if row["reading"] == "code" else 0.5
        assert row["lr"] == pytest.approx(share / beta)
        assert (row["epochs"], row["steps"], row["batch"]) == (2, 8, 6)
        assert np.all(np.array(row["best_epoch_accuracy"]) >= row["accuracy"])
        if row["method"] == "dp-sgld":
            assert row["claimed_epsilon"] == pytest.approx(8.0) and row["guaranteed_epsilon"] > 8
        elif row["method"] == "dp-sgd":
            assert 7.9 < row["guaranteed_epsilon"] <= 8 and row["relation"] == "add_remove"
    sigma2 = next(row for row in rows if row["schedule"] == "decreasing")["sigma"] ** 2
    claimed = claimed_epsilon_decreasing(math.sqrt(2), 0.03, beta, 24, sigma2, 2, 1e-5)
    assert claimed == pytest.approx(8.0)


def test_all_methods_take_the_same_steps_in_order(data, tmp_path, monkeypatch):
    """eta_k = 1 / (2 beta + lambda k / 2), as each update rule computes it."""
    rates = {"langevin": [], "sgd": []}
    langevin_step, sgd_update = LangevinRun.step, SGD.update

    def of_langevin(training):
        rates["langevin"].append(training.settings.rates[training.steps_done])
        langevin_step(training)

    def of_sgd(optimizer, name, value, gradient, rate):
        rates["sgd"].append(rate)
        sgd_update(optimizer, name, value, gradient, rate)

    monkeypatch.setattr(LangevinRun, "step", of_langevin)
    monkeypatch.setattr(SGD, "update", of_sgd)
    reading = {**FIRST, "schedules": ["decreasing"]}
    run(spec_of("protocol", readings=[reading], runs=1), data, tmp_path)
    expected = [1 / (2 * 0.53 + 0.03 * k / 2) for k in range(8)]
    np.testing.assert_allclose(rates["langevin"], expected, rtol=1e-12)
    np.testing.assert_allclose(rates["sgd"], 3 * expected, rtol=1e-12)


def test_the_tuning_tries_clip_bounds_for_dp_sgd_alone(data, tmp_path):
    rows = json.loads(run(spec_of("protocol_tuning"), data, tmp_path))["metrics"]["rows"]
    bounds = [{"max_grad_norm": 0.5}, {"max_grad_norm": 1.0}]
    for row in rows:
        of_dp_sgd = row["arm"].startswith("dp-sgd")
        assert [each["settings"] for each in row["tried"]] == (bounds if of_dp_sgd else [{}])
        assert row["chosen"] in (bounds if of_dp_sgd else [{}])
    spec = spec_of("protocol", chosen={row["arm"]: row["chosen"] for row in rows})
    arms = metrics_of(spec, data, tmp_path / "report")["arms"]
    for arm, row in zip(arms, rows, strict=True):
        assert row["chosen"].items() <= arm.items()


@pytest.mark.parametrize(
    ("readings", "message"),
    [
        ([FIRST] * 2, "readings: found .*; allowed: each name once"),
        ([{**FIRST, "step_size": 1.0}], "step_size: found 1.0; allowed: .*less than 1"),
    ],
)
def test_readings_that_cannot_be_are_refused(data, tmp_path, readings, message):
    with pytest.raises(InputError, match=message):
        run(spec_of("protocol", readings=readings), data, tmp_path)
