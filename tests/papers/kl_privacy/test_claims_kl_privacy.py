"""Every rule against runs whose truth is known, through the committed claims.yaml."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from committed_claims import CLAIMS
from kl_sample_records import INITS, constants_record, linearized_record, training_record

from dpatlas.evidence.claims import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    judge_claims,
)
from dpatlas.evidence.comparisons import PaperRecords

LEVEL = {"lecun": 1.0, "xavier": 1.5, "he": 10.0, "ntk": 20.0}
HORIZONS = {"early": 8, "short": 16, "long": 40}
STEPS, RUNS, LR, SIGMA = 40, 6, 0.01, 0.1


def growth(step):
    """Near linear before step 8, near cubic after 16."""
    return step * (1 + (step / 30) ** 2)


def depth_factor(init, depth, step):
    """Rises with depth, but for a hump at depth 4 in the short training of LeCun and Xavier."""
    if init in ("lecun", "xavier") and step <= HORIZONS["short"]:
        return math.exp(-((depth - 4) ** 2) / 4)
    return math.exp(depth / 4)


def training(init, depth, width, curve, **fields):
    sizes = {"steps": STEPS, "runs": RUNS, "lr": LR, "sigma": SIGMA}
    return training_record(init, depth, width, curve=curve, noise=0.01, **sizes, **fields)


def bounds(init):
    # Far below the first term of Lemma 3.2, 2 T gap / (4 sigma^2).
    gap = training_record(init).metrics.gradient_gap_at_start
    return training(init, 4, 16, lambda step: 0.5 * LR * step * gap / (4 * SIGMA**2))


def world():
    """Groups of records in which every claim is true."""
    return {
        "epochs": [training(i, 3, 16, lambda s, i=i: LEVEL[i] * growth(s)) for i in INITS],
        "depth": [
            training(i, d, 16, lambda s, i=i, d=d: LEVEL[i] * depth_factor(i, d, s) * growth(s))
            for i, d in itertools.product(INITS, (2, 4, 6))
        ],
        "width": [
            training(i, 3, w, lambda s, i=i, w=w: LEVEL[i] * w * growth(s))
            for i, w in itertools.product(INITS, (8, 16, 32))
        ],
        "bounds": [bounds(i) for i in INITS],
        "linearized": [linearized_record(i, (2, 4, 6), RUNS, noise=0.01) for i in INITS],
        "constants": [constants_record()],
    }


def verdicts(groups, horizons=HORIZONS):
    paper = PaperRecords({"horizons": horizons}, groups)
    rows = judge_claims(CLAIMS, {"kl_privacy": paper}, "test")
    return {row["claim"]: row for row in rows if row["paper"] == "kl_privacy"}


def find(groups, group, init, **spec):
    (record,) = (
        record
        for record in groups[group]
        if record.spec.init == init
        and all(getattr(record.spec, name) == value for name, value in spec.items())
    )
    return record


def replace(groups, group, record, other):
    """Put another record in the place of one."""
    groups[group][groups[group].index(record)] = other


def scale(groups, group, init, factor, noise=0.0, **spec):
    """Multiply KL at step s by factor(s), and spread the runs."""
    kl = find(groups, group, init, **spec).metrics.kl
    draws = np.random.default_rng(9).normal(0, noise, RUNS)
    for index in range(STEPS):
        kl.worst[index] *= factor(index + 1)
        kl.run_max[index] = [
            value * factor(index + 1) * math.exp(draw)
            for value, draw in zip(kl.run_max[index], draws, strict=True)
        ]


def test_a_world_in_which_every_claim_is_true_reproduces_every_claim():
    rows = verdicts(world())
    assert {row["verdict"] for row in rows.values()} == {REPRODUCED}
    assert len(rows) == 26
    assert {row["runs"] for row in rows.values()} == {RUNS, 2000}


def falls_in_time(groups):
    scale(groups, "epochs", "he", lambda step: 0.5 if step > 20 else 1.0)


def grows_as_a_square(groups):
    scale(groups, "epochs", "he", lambda step: step)


def grows_as_a_root(groups):
    scale(groups, "epochs", "ntk", lambda step: step**-0.5 / (1 + (step / 30) ** 2))


def lecun_above_he(groups):
    scale(groups, "epochs", "lecun", lambda step: 15)


def shrinks_with_width(groups):
    scale(groups, "width", "xavier", lambda step: 0.01, width=32)


def dips_with_width(groups):
    scale(groups, "width", "lecun", lambda step: 0.4, width=16)


def he_falls_with_depth(groups):
    scale(groups, "depth", "he", lambda step: 0.1, depth=6)


def lecun_rises_only(groups):
    scale(groups, "depth", "lecun", lambda step: 20, depth=6)


def xavier_falls_in_long_training(groups):
    scale(groups, "depth", "xavier", lambda step: 0.1 if step > 16 else 1.0, depth=6)


def above_lemma(groups):
    scale(groups, "bounds", "he", lambda step: 1e6 if step == 7 else 1.0)


def above_corollary(groups):
    rows = find(groups, "linearized", "ntk").metrics.depths
    rows[1].kl_worst_runs[2] = [200.0 + run for run in range(RUNS)]


def monte_carlo_is_off(groups):
    rows = groups["constants"][0].metrics.rows
    rows[3] = rows[3].model_copy(update={"mean": 1.2 * rows[3].B})


def product_halves_per_layer(groups):
    for row in find(groups, "linearized", "lecun").metrics.depths:
        row.BR_over_n_runs[:] = [value / 2**row.depth for value in row.BR_over_n_runs]


def product_halves_per_layer_on_the_sphere(groups):
    for row in find(groups, "linearized", "xavier").metrics.depths:
        row.sphere.BR_over_n_runs[:] = [40 / 2**row.depth * (1 + r / 99) for r in range(8)]


@pytest.mark.parametrize(
    ("change", "refuted"),
    [
        (falls_in_time, {"kl-1a", "kl-1"}),
        (grows_as_a_square, {"kl-1b", "kl-1"}),
        (grows_as_a_root, {"kl-1b", "kl-1c", "kl-1"}),
        (lecun_above_he, {"kl-2"}),
        (shrinks_with_width, {"kl-3d", "kl-3"}),
        (dips_with_width, {"kl-3a", "kl-3"}),
        (he_falls_with_depth, {"kl-4a", "kl-4", "kl-5b", "kl-5"}),
        (lecun_rises_only, {"kl-4b", "kl-4"}),
        (xavier_falls_in_long_training, {"kl-5d", "kl-5"}),
        (above_lemma, {"kl-6a", "kl-6"}),
        (above_corollary, {"kl-6b", "kl-6"}),
        (monte_carlo_is_off, {"kl-7"}),
        (product_halves_per_layer, {"kl-8b", "kl-8"}),
        (product_halves_per_layer_on_the_sphere, {"kl-8a", "kl-8"}),
    ],
)
def test_a_claim_made_false_is_refuted_and_the_others_stand(change, refuted):
    groups = world()
    change(groups)
    rows = verdicts(groups)
    assert {name for name, row in rows.items() if row["verdict"] == NOT_REPRODUCED} == refuted
    assert {row["verdict"] for row in rows.values()} <= {REPRODUCED, NOT_REPRODUCED}


@pytest.mark.parametrize(
    ("group", "init", "where", "blurred"),
    [
        ("epochs", "lecun", {}, {"kl-2"}),
        ("width", "he", {"width": 32}, {"kl-3b", "kl-3"}),
        ("depth", "he", {"depth": 6}, {"kl-4a", "kl-4", "kl-5b", "kl-5"}),
        ("depth", "lecun", {"depth": 4}, {"kl-4b", "kl-4"}),
    ],
)
def test_noise_between_runs_makes_a_claim_inconclusive_and_refutes_none(
    group, init, where, blurred
):
    groups = world()
    scale(groups, group, init, lambda step: 1.0, noise=3.0, **where)
    rows = verdicts(groups)
    changed = {name: row for name, row in rows.items() if row["verdict"] != REPRODUCED}
    assert set(changed) == blurred
    assert {row["verdict"] for row in changed.values()} == {INCONCLUSIVE}


def test_verdict_agrees_with_the_interval_that_is_shown():
    groups = world()
    scale(groups, "depth", "he", lambda step: 0.1, depth=6)
    scale(groups, "epochs", "lecun", lambda step: 1.0, noise=3.0)
    rows = verdicts(groups)
    assert rows["kl-4a"]["high"] < -math.log(1.1)
    assert "depth 6 less depth 4" in rows["kl-4a"]["note"]
    assert rows["kl-2"]["low"] < 0 < rows["kl-2"]["high"]
    assert "lecun" in rows["kl-2"]["note"]
    assert rows["kl-3a"]["low"] > 0


def test_the_error_is_shared_over_the_planned_entries():
    assert CLAIMS.planned == 71
    rows = verdicts(world())
    # The slope and two neighbouring pairs; all have to hold, so none takes error from the others.
    assert rows["kl-3a"]["comparisons"] == 3
    assert float(rows["kl-3a"]["level"]) == pytest.approx(1 - 0.05 / CLAIMS.planned, abs=1e-5)
    assert float(rows["kl-2"]["level"]) == pytest.approx(1 - 0.05 / CLAIMS.planned, abs=1e-5)
    assert rows["kl-1a"]["level"] == ""


def test_to_refute_the_error_is_shared_over_the_comparisons_too():
    groups = world()
    shrinks_with_width(groups)
    row = verdicts(groups)["kl-3d"]
    assert row["verdict"] == NOT_REPRODUCED
    assert float(row["level"]) == pytest.approx(1 - 0.05 / CLAIMS.planned / 3, abs=1e-5)


@pytest.mark.parametrize(
    ("group", "init", "where", "touched"),
    [
        ("epochs", "ntk", {}, {"kl-1", "kl-1a", "kl-1b", "kl-1c", "kl-2"}),
        ("depth", "ntk", {"depth": 6}, {"kl-5", "kl-5c"}),
        ("bounds", "he", {}, {"kl-6", "kl-6a"}),
    ],
)
def test_a_diverged_run_makes_what_needs_it_inconclusive_and_is_named(group, init, where, touched):
    groups = world()
    record = find(groups, group, init, **where)
    record.metrics.diverged[2] = 17
    for runs in record.metrics.kl.run_max:
        del runs[2]
    rows = verdicts(groups)
    changed = {name: row for name, row in rows.items() if row["verdict"] != REPRODUCED}
    assert set(changed) == touched
    assert {row["verdict"] for row in changed.values()} == {INCONCLUSIVE}
    parts = [row for name, row in changed.items() if name[-1].isalpha() or name == "kl-2"]
    assert all(f"1 of {RUNS} runs of {record.id} diverged" in row["note"] for row in parts)
    assert all(row["runs"] == RUNS - 1 for row in parts)


def test_a_condition_of_which_all_runs_diverged_is_inconclusive():
    groups = world()
    record = find(groups, "depth", "he", depth=6)
    replace(groups, "depth", record, training_record("he", 6, 16, runs=RUNS, diverged=RUNS))
    assert verdicts(groups)["kl-4a"]["verdict"] == INCONCLUSIVE


def test_kl_of_zero_is_inconclusive_and_not_an_infinite_fall():
    groups = world()
    record = find(groups, "depth", "lecun", depth=6)
    record.metrics.kl.run_max[15][0] = 0.0
    row = verdicts(groups)["kl-4b"]
    assert row["verdict"] == INCONCLUSIVE
    assert "zero" in row["note"]


@pytest.mark.parametrize("group", ["epochs", "depth", "width", "bounds", "linearized", "constants"])
def test_a_group_that_the_config_lacks_is_not_run(group):
    groups = world()
    del groups[group]
    rows = verdicts(groups)
    missing = [row for row in rows.values() if row["verdict"] == NOT_RUN]
    assert missing
    assert {row["verdict"] for row in rows.values()} == {REPRODUCED, NOT_RUN}
    assert all(group in row["note"] for row in missing if not row["note"].startswith("parts"))


def test_an_init_that_the_config_lacks_is_not_run_and_the_others_are():
    groups = {
        name: [record for record in records if getattr(record.spec, "init", None) != "ntk"]
        for name, records in world().items()
    }
    rows = verdicts(groups)
    assert rows["kl-3c"]["verdict"] == NOT_RUN
    assert rows["kl-3b"]["verdict"] == REPRODUCED
    assert rows["kl-2"]["verdict"] == NOT_RUN


def test_a_sweep_without_interior_and_a_run_too_short_for_a_horizon_are_not_run():
    groups = world()
    groups["depth"] = [record for record in groups["depth"] if record.spec.depth != 4]
    rows = verdicts(groups, {**HORIZONS, "long": STEPS + 1})
    assert rows["kl-4b"]["verdict"] == NOT_RUN
    assert rows["kl-4a"]["verdict"] == REPRODUCED
    assert rows["kl-5a"]["verdict"] == NOT_RUN


def test_conditions_with_other_seeds_are_not_taken_as_pairs():
    groups = world()
    for init in INITS:
        scale(groups, "epochs", init, lambda step: 1.0, noise=1.0)
    paired = verdicts(groups)["kl-2"]
    for seed, init in ((1, "lecun"), (2, "xavier")):
        record = find(groups, "epochs", init)
        spec = record.spec.model_copy(update={"seed": seed})
        replace(groups, "epochs", record, dataclasses.replace(record, spec=spec))
    unpaired = verdicts(groups)["kl-2"]
    # The noise is shared by run: only pairs can subtract it.
    assert paired["verdict"] == REPRODUCED
    assert unpaired["verdict"] == INCONCLUSIVE
