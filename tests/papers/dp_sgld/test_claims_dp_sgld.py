"""dp_sgld's rules against runs whose truth is known, through the committed claims.yaml.

Rows have the arms that the experiments themselves make, so that a renamed arm would be missed here.
"""

import numpy as np
import pytest
from sgld_world import (
    FALSE,
    RUNS,
    accuracy_record,
    arm_of,
    curve_of,
    runs_of,
    verdicts,
    with_verdict,
    world,
)

from dpatlas.evidence.claims import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
)


def test_a_world_in_which_every_claim_is_true_reproduces_every_claim():
    rows = verdicts(world())
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE
    assert with_verdict(rows, REPRODUCED) == set(rows) - FALSE
    assert len(rows) == 31
    assert {row["runs"] for row in rows.values() if row["kind"] == "statistical"} == {RUNS}
    assert {row["runs"] for row in rows.values() if row["kind"] == "exact"} == {1}


def set_arm(number, mean, **keys):
    """The change that gives an arm of an `accuracy` record another mean."""

    def change(groups):
        arm_of(groups["accuracy"][number], **keys).accuracy[:] = runs_of(mean, 9)

    return change


LANGEVIN = {"method": "dp-sgld", "epsilon": 1.0}
DP_SGD = {"method": "dp-sgd", "epsilon": 1.0}


def fewer_layers_are_better_without_privacy(groups):
    record = groups["finetune"][0]
    arm_of(record, method="no-dp", unfreeze="blocks").accuracy[:] = runs_of(0.7, 9)


def more_layers_help_dp_sgd(groups):
    record = groups["finetune"][0]
    arm_of(record, method="dp-sgd", unfreeze="blocks").accuracy[:] = runs_of(0.9, 9)


def dp_sgd_wins_in_the_end(groups):
    record = groups["long_training"][0]
    arm_of(record, method="dp-sgd", steps=100).accuracy[:] = runs_of(0.9, 9)


def the_claim_grows(groups):
    curve_of(groups, "claimed, steps").epsilon[-1] *= 1.1


def composition_levels_off(groups):
    curve_of(groups, "every iterate").epsilon[-1] = 8.0


def divergence_stays_below_the_claim(groups):
    groups["counterexample"][0].metrics.scan[0].exact[1][1] = 0.79


def set_delta(groups, place, delta):
    calibrated = groups["counterexample"][0].metrics.calibrated
    calibrated[place] = calibrated[place].model_copy(update={"delta": delta})


def delta_stays_below_the_promise(groups):
    set_delta(groups, 1, 9e-6)


def full_batches_exceed_the_claim(groups):
    groups["counterexample"][0].metrics.scan[1].exact[0][0] = 0.1001


def full_batches_exceed_the_promise(groups):
    set_delta(groups, 2, 1.1e-5)


def the_quadratic_stays_below_the_bound(groups):
    curve_of(groups, "quadratic, fixed start", "published").epsilon[1] *= 1 - 2e-6


@pytest.mark.parametrize(
    ("change", "refuted"),
    [
        (
            set_arm(0, 0.79, **LANGEVIN, comparison="published", schedule="constant"),
            {"sgld-1a", "sgld-1", "sgld-3a", "sgld-3"},
        ),
        # Better than DP-SGD, and more than a point below No DP.
        (
            set_arm(2, 0.85, **LANGEVIN, comparison="theorem", schedule="decreasing"),
            {"sgld-3b", "sgld-3"},
        ),
        (
            set_arm(0, 0.5, **LANGEVIN, comparison="guaranteed", schedule="decreasing"),
            {"sgld-2c", "sgld-2", "sgld-3c", "sgld-3"},
        ),
        # DP-SGD that adds or removes records is the opponent under both counts of K.
        (
            set_arm(1, 0.95, **DP_SGD, comparison="published"),
            {"sgld-1a", "sgld-1b", "sgld-1"},
        ),
        (
            set_arm(2, 0.95, **DP_SGD, comparison="guaranteed"),
            {"sgld-2c", "sgld-2"},
        ),
        (set_arm(1, 0.99, method="no-dp"), {"sgld-3a", "sgld-3b", "sgld-3c", "sgld-3"}),
        (fewer_layers_are_better_without_privacy, {"sgld-4a", "sgld-4"}),
        (more_layers_help_dp_sgd, {"sgld-4b", "sgld-4"}),
        (the_claim_grows, {"sgld-6a", "sgld-6"}),
        (composition_levels_off, {"sgld-6b", "sgld-6"}),
        (divergence_stays_below_the_claim, {"sgld-7a", "sgld-7"}),
        (delta_stays_below_the_promise, {"sgld-7b", "sgld-7"}),
        (full_batches_exceed_the_claim, {"sgld-7c", "sgld-7"}),
        (full_batches_exceed_the_promise, {"sgld-7c", "sgld-7"}),
        (dp_sgd_wins_in_the_end, {"sgld-9"}),
        (the_quadratic_stays_below_the_bound, {"sgld-10"}),
    ],
)
def test_a_claim_made_false_is_refuted_and_the_others_stand(change, refuted):
    groups = world()
    change(groups)
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == refuted | FALSE
    assert with_verdict(rows, REPRODUCED) == set(rows) - refuted - FALSE


@pytest.mark.parametrize(
    ("group", "keys", "blurred"),
    [
        (
            "accuracy",
            {**LANGEVIN, "comparison": "theorem", "schedule": "constant"},
            {"sgld-1b", "sgld-1", "sgld-3b", "sgld-3"},
        ),
        (
            "accuracy",
            {**LANGEVIN, "comparison": "guaranteed", "schedule": "decreasing"},
            {"sgld-2c", "sgld-2", "sgld-3c", "sgld-3"},
        ),
        ("finetune", {"method": "no-dp", "unfreeze": "blocks"}, {"sgld-4a", "sgld-4"}),
        ("finetune", {"method": "dp-sgd", "unfreeze": "head"}, {"sgld-4b", "sgld-4"}),
        ("long_training", {"method": "repaired-full", "steps": 100}, {"sgld-9"}),
    ],
)
@pytest.mark.parametrize("how", ["noise", "a single run"])
def test_noise_between_runs_or_a_single_run_leaves_a_claim_open(group, keys, blurred, how):
    groups = world()
    arm = arm_of(groups[group][0], **keys)
    if how == "noise":
        arm.accuracy[:] = runs_of(np.mean(arm.accuracy), 3, spread=0.3)
    else:
        for row in groups[group][0].metrics.rows:
            if row.method == keys["method"] or group == "accuracy":
                del row.accuracy[1:]
    rows = verdicts(groups)
    assert blurred <= with_verdict(rows, INCONCLUSIVE)
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE
    if how == "noise":
        assert with_verdict(rows, INCONCLUSIVE) == blurred


@pytest.mark.parametrize(
    ("group", "missing"),
    [
        ("accuracy", {f"sgld-{n}{part}" for n in (1, 2, 3, 5) for part in ("a", "b", "c", "")}),
        ("finetune", {"sgld-4a", "sgld-4b", "sgld-4"}),
        ("long_training", {"sgld-9"}),
        (
            "privacy_loss",
            {*("sgld-6a", "sgld-6b", "sgld-6", "sgld-8a", "sgld-8b", "sgld-8", "sgld-10")},
        ),
        ("counterexample", {"sgld-7a", "sgld-7b", "sgld-7c", "sgld-7"}),
    ],
)
def test_a_group_that_the_config_lacks_is_not_run(group, missing):
    groups = world()
    del groups[group]
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_RUN) == missing
    notes = [rows[name]["note"] for name in missing]
    assert all(group in note for note in notes if not note.startswith("parts"))


def test_a_schedule_that_the_config_lacks_is_not_run_and_the_other_is():
    groups = world() | {"accuracy": [accuracy_record(1, "constant")]}
    rows = verdicts(groups)
    assert {rows[f"sgld-1{part}"]["verdict"] for part in "abc"} == {REPRODUCED}
    for name in ("sgld-2a", "sgld-3a"):
        assert rows[name]["verdict"] == NOT_RUN and "decreasing" in rows[name]["note"]


def test_an_epsilon_that_some_record_lacks_is_not_run():
    groups = world()
    groups["accuracy"].append(accuracy_record(3, "constant", epsilons=(8.0,)))
    rows = verdicts(groups)
    assert rows["sgld-1a"]["verdict"] == rows["sgld-3a"]["verdict"] == NOT_RUN
    assert "epsilon 1.0" in rows["sgld-1a"]["note"] and "accuracy-3" in rows["sgld-1a"]["note"]
    assert rows["sgld-2a"]["verdict"] == REPRODUCED


def test_the_interval_that_decides_is_that_of_the_record_closest_to_failing():
    groups = world()
    keys = {**LANGEVIN, "comparison": "published", "schedule": "constant"}
    arm_of(groups["accuracy"][1], **keys).accuracy[:] = runs_of(0.89, 9)
    row = verdicts(groups)["sgld-1a"]
    assert row["comparisons"] == 2 and "accuracy-1" in row["note"]
    first, second = (
        np.array(arm_of(groups["accuracy"][1], **each).accuracy)
        for each in (keys, {**DP_SGD, "comparison": "published"})
    )
    assert row["observed"] == pytest.approx(first.mean() - second.mean())
    assert 0 < row["low"] < row["observed"] < row["high"]


def test_layers_are_ordered_by_how_much_they_train_not_by_their_place():
    groups = world()
    groups["finetune"][0].metrics.rows.reverse()
    assert verdicts(groups)["sgld-4"]["verdict"] == REPRODUCED
    assert "blocks trained, less head alone" in verdicts(groups)["sgld-4a"]["note"]


def test_fine_tunings_of_one_number_are_pairs():
    """Noise that runs share is subtracted; between regressions it is not."""
    groups = world()
    shared = np.random.default_rng(4).normal(0, 0.1, RUNS)
    for group in ("finetune", "long_training"):
        for row in groups[group][0].metrics.rows:
            row.accuracy[:] = (np.array(row.accuracy) + shared).tolist()
    rows = verdicts(groups)
    assert rows["sgld-4"]["verdict"] == REPRODUCED
    assert rows["sgld-9"]["verdict"] == INCONCLUSIVE


def test_one_choice_of_layers_is_not_run():
    groups = world()
    rows = groups["finetune"][0].metrics.rows
    rows[:] = [row for row in rows if row.unfreeze == "head"]
    assert "the claim needs two" in verdicts(groups)["sgld-4a"]["note"]
    assert verdicts(groups)["sgld-4"]["verdict"] == NOT_RUN
