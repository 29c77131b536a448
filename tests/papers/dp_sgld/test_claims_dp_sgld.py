"""dp_sgld's claims judged on records whose truth is known, through the committed claims.yaml.

That each entry holds in the true world and fails in one made false is tests/contract's.
"""

import dataclasses
import math

import numpy as np
import pytest
from sgld_world import (
    CHANGES,
    RUNS,
    accuracy_record,
    arm_of,
    counterexample_record,
    curve_of,
    groups,
    privacy_loss_record,
    runs_of,
    set_accuracy,
    set_delta,
    verdicts,
    with_verdict,
)

from dpatlas.evidence.claims import INCONCLUSIVE, NOT_REPRODUCED, NOT_RUN, REPRODUCED
from dpatlas.papers.dp_sgld import claims_exact
from dpatlas.papers.dp_sgld.formulas.published import PUBLISHED_RUNS, TABLE_4

# By arithmetic on the printed table: d counts parameters.
REFUTED = {"sgld-5c", "sgld-5"}
LANGEVIN = {"method": "dp-sgld", "epsilon": 1.0}
DP_SGD = {"method": "dp-sgd", "epsilon": 1.0}


@pytest.mark.parametrize(
    ("change", "refuted"),
    [
        (lambda records: None, set()),
        # Better than DP-SGD, and more than a point below No DP.
        (CHANGES["sgld-3b"], {"sgld-3b", "sgld-3"}),
        # DP-SGD that adds or removes records is the opponent under both counts of K.
        (
            set_accuracy(0.95, number=1, **DP_SGD, comparison="published"),
            {"sgld-1a", "sgld-1b", "sgld-1"},
        ),
        (set_accuracy(0.95, number=2, **DP_SGD, comparison="guaranteed"), {"sgld-2c", "sgld-2"}),
        (set_delta(2, 1.1e-5), {"sgld-7c", "sgld-7"}),
    ],
)
def test_a_change_refutes_the_claims_that_rest_on_it_and_no_other(change, refuted):
    records = groups()
    change(records)
    rows = verdicts(records)
    assert with_verdict(rows, NOT_REPRODUCED) == refuted | REFUTED
    assert with_verdict(rows, REPRODUCED) == set(rows) - refuted - REFUTED
    for kind, runs in (("statistical", RUNS), ("exact", 1)):
        assert {row["runs"] for row in rows.values() if row["kind"] == kind} == {runs}


@pytest.mark.parametrize(
    ("group", "keys", "open_claims"),
    [
        (
            "accuracy",
            {**LANGEVIN, "comparison": "guaranteed", "schedule": "decreasing"},
            {"sgld-2c", "sgld-2", "sgld-3c", "sgld-3"},
        ),
        ("finetune", {"method": "no-dp", "unfreeze": "blocks"}, {"sgld-4a", "sgld-4"}),
        ("long_training", {"method": "repaired-full", "steps": 100}, {"sgld-9"}),
    ],
)
@pytest.mark.parametrize("how", ["noise", "a single run"])
def test_noise_between_runs_or_a_single_run_leaves_a_claim_open(group, keys, open_claims, how):
    records = groups()
    arm = arm_of(records[group][0], **keys)
    if how == "noise":
        arm.accuracy[:] = runs_of(np.mean(arm.accuracy), 3, spread=0.3)
    else:
        for row in records[group][0].metrics.rows:
            if row.method == keys["method"] or group == "accuracy":
                del row.accuracy[1:]
    rows = verdicts(records)
    assert open_claims <= with_verdict(rows, INCONCLUSIVE)
    assert with_verdict(rows, NOT_REPRODUCED) == REFUTED
    if how == "noise":
        assert with_verdict(rows, INCONCLUSIVE) == open_claims


def no_accuracy(records):
    del records["accuracy"]


def only_constant_steps(records):
    records["accuracy"] = [accuracy_record(1, "constant")]


def a_record_without_epsilon_1(records):
    records["accuracy"].append(accuracy_record(3, "constant", epsilons=(8.0,)))


def curves_of_decreasing_steps(records):
    curves = records["privacy_loss"][0].metrics.curves
    curves[:] = [curve for curve in curves if curve.schedule == "decreasing"]


def only_full_batches(records):
    records["counterexample"] = [counterexample_record((100,))]


@pytest.mark.parametrize(
    ("change", "entry", "note", "still_reproduced"),
    [
        (no_accuracy, "sgld-1a", "accuracy", "sgld-4"),
        (only_constant_steps, "sgld-2a", "decreasing", "sgld-1"),
        (a_record_without_epsilon_1, "sgld-1a", "accuracy-3", "sgld-2a"),
        (curves_of_decreasing_steps, "sgld-6a", "constant", "sgld-8"),
        (only_full_batches, "sgld-7a", "no batches of that size", "sgld-7c"),
    ],
)
def test_settings_that_a_record_lacks_are_not_run(change, entry, note, still_reproduced):
    records = groups()
    change(records)
    rows = verdicts(records)
    assert rows[entry]["verdict"] == NOT_RUN and note in rows[entry]["note"]
    assert rows[still_reproduced]["verdict"] == REPRODUCED


def test_the_interval_that_decides_is_that_of_the_record_closest_to_failing():
    records = groups()
    keys = {**LANGEVIN, "comparison": "published", "schedule": "constant"}
    set_accuracy(0.89, number=1, **keys)(records)
    row = verdicts(records)["sgld-1a"]
    assert row["comparisons"] == 2 and "accuracy-1" in row["note"]
    langevin, dp_sgd = (
        np.array(arm_of(records["accuracy"][1], **arm).accuracy)
        for arm in (keys, {**DP_SGD, "comparison": "published"})
    )
    assert row["observed"] == pytest.approx(langevin.mean() - dp_sgd.mean())
    assert 0 < row["low"] < row["observed"] < row["high"]


def test_layers_are_ordered_by_how_much_they_train_not_by_their_place():
    records = groups()
    records["finetune"][0].metrics.rows.reverse()
    assert verdicts(records)["sgld-4"]["verdict"] == REPRODUCED
    assert "blocks trained, less head alone" in verdicts(records)["sgld-4a"]["note"]


def test_fine_tunings_with_the_same_run_number_are_pairs():
    """Noise that runs share is subtracted; between regressions it is not."""
    records = groups()
    shared = np.random.default_rng(4).normal(0, 0.1, RUNS)
    for group in ("finetune", "long_training"):
        for row in records[group][0].metrics.rows:
            row.accuracy[:] = (np.array(row.accuracy) + shared).tolist()
    rows = verdicts(records)
    assert rows["sgld-4"]["verdict"] == REPRODUCED
    assert rows["sgld-9"]["verdict"] == INCONCLUSIVE


def test_another_print_of_table_4_would_turn_its_verdicts(monkeypatch):
    printed = {
        (problem.dataset, problem.backbone): (
            problem.beta,
            1.03 * problem.beta / problem.lam,
            problem.ratio(problem.parameters),
        )
        for problem in TABLE_4
    }
    monkeypatch.setattr(claims_exact, "PRINTED_TABLE_4", printed)
    rows = verdicts(groups())
    assert with_verdict(rows, NOT_REPRODUCED) == {"sgld-5a", "sgld-5b", "sgld-5"}
    assert rows["sgld-5c"]["verdict"] == REPRODUCED


@pytest.mark.parametrize("number", [0, 5])
def test_one_row_of_other_noise_would_turn_the_verdict_on_the_printed_epsilon(monkeypatch, number):
    runs = list(PUBLISHED_RUNS)
    runs[number] = dataclasses.replace(runs[number], sigma=1.1 * runs[number].sigma)
    monkeypatch.setattr(claims_exact, "PUBLISHED_RUNS", runs)
    refuted = with_verdict(verdicts(groups()), NOT_REPRODUCED) - REFUTED
    assert refuted >= {"sgld-8a", "sgld-8"}
    assert ("sgld-8b" in refuted) == (runs[number].dataset == "Pneumonia")


@pytest.mark.parametrize(
    ("steps", "epsilons", "verdict", "note"),
    [
        ((1, 100), {}, REPRODUCED, "step 50 to 100"),
        ((60, 100), {}, NOT_RUN, "no point before step 50"),
        ((1, 10, 60, 100), {3: None}, INCONCLUSIVE, "infinite"),
    ],
)
def test_growth_over_a_doubling_is_that_of_the_power_law_between_points(
    steps, epsilons, verdict, note
):
    """The curve grows like the square root of the steps."""
    records = groups() | {"privacy_loss": [privacy_loss_record(steps)]}
    for number, value in epsilons.items():
        curve_of(records, "every iterate").epsilon[number] = value
    row = verdicts(records)["sgld-6b"]
    assert row["verdict"] == verdict and note in row["note"]
    if verdict == REPRODUCED:
        assert row["observed"] == pytest.approx(math.sqrt(2) - 1)


def test_an_exact_epsilon_of_zero_agrees_with_a_bound_of_zero():
    records = groups()
    for curve in (claims_exact.BOUND, claims_exact.QUADRATIC):
        curve_of(records, curve).epsilon[0] = 0.0
    assert verdicts(records)["sgld-10"]["observed"] == pytest.approx(1e-9)
