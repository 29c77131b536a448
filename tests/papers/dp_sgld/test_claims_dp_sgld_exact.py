"""dp_sgld's exact rules: what follows from curves and from the printed tables."""

import dataclasses
import math

import pytest
from figure_samples import sample_record
from sgld_world import (
    FALSE,
    counterexample_record,
    curve_of,
    privacy_loss_record,
    verdicts,
    with_verdict,
    world,
)

from dpatlas.core.specs import Spec
from dpatlas.evidence.claims import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
)
from dpatlas.jobs.job import Job, checked_fields
from dpatlas.jobs.run import kind_of
from dpatlas.papers.dp_sgld import claims_exact
from dpatlas.papers.dp_sgld.formulas.published import PUBLISHED_RUNS, TABLE_4
from dpatlas.papers.dp_sgld.jobs import privacy_loss as losses_job


def test_table_4_follows_from_the_number_of_classes_and_not_of_parameters():
    rows = verdicts(world())
    assert rows["sgld-5a"]["observed"] == pytest.approx(259 / 260 - 1, abs=8e-3)
    assert 0.03 < rows["sgld-5b"]["observed"] < 0.09
    assert 0.99 < rows["sgld-5c"]["observed"] < 1


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
    rows = verdicts(world())
    assert with_verdict(rows, NOT_REPRODUCED) == {"sgld-5a", "sgld-5b", "sgld-5"}
    assert rows["sgld-5c"]["verdict"] == REPRODUCED


def test_growth_over_a_doubling_is_that_of_the_power_law_between_points():
    for steps in ((1, 10, 60, 100), (1, 100), (1, 50, 100)):
        groups = world() | {"privacy_loss": [privacy_loss_record(steps)]}
        row = verdicts(groups)["sgld-6b"]
        assert row["observed"] == pytest.approx(math.sqrt(2) - 1)


@pytest.mark.parametrize(
    ("steps", "change", "verdict", "said"),
    [
        ((60, 100), {}, NOT_RUN, "no point before step 50"),
        ((1, 10, 60, 100), {1: 0.0}, INCONCLUSIVE, "zero"),
        ((1, 10, 60, 100), {3: None}, INCONCLUSIVE, "infinite"),
    ],
)
def test_a_curve_without_a_doubling_or_without_numbers_gives_no_answer(
    steps, change, verdict, said
):
    groups = world() | {"privacy_loss": [privacy_loss_record(steps)]}
    for place, value in change.items():
        curve_of(groups, "every iterate").epsilon[place] = value
    row = verdicts(groups)["sgld-6b"]
    assert row["verdict"] == verdict and said in row["note"]


def test_curves_that_the_config_leaves_out_are_not_run():
    groups = world()
    curves = groups["privacy_loss"][0].metrics.curves
    curves[:] = [each for each in curves if each.schedule == "decreasing"]
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_RUN) == {"sgld-6a", "sgld-6b", "sgld-6", "sgld-10"}


def test_an_exact_epsilon_of_zero_agrees_with_a_bound_of_zero():
    groups = world()
    for curve in ("full batch, hidden state", "quadratic, fixed start"):
        curve_of(groups, curve).epsilon[0] = 0.0
    assert verdicts(groups)["sgld-10"]["observed"] == pytest.approx(1e-9)


def test_the_largest_excess_is_shown_with_its_place():
    rows = verdicts(world())
    assert rows["sgld-7a"]["observed"] == pytest.approx(math.log(10))
    assert "m 1, eta 0.5, sigma2 0.02, K 5, order 8" in rows["sgld-7a"]["note"]
    assert rows["sgld-7b"]["observed"] == pytest.approx(2)
    assert "K 5" in rows["sgld-7b"]["note"]


@pytest.mark.parametrize(
    ("batches", "missing"), [((100,), {"sgld-7a", "sgld-7b"}), ((1,), {"sgld-7c"})]
)
def test_batches_that_the_scan_lacks_are_not_run(batches, missing):
    groups = world() | {"counterexample": [counterexample_record(batches)]}
    assert with_verdict(verdicts(groups), NOT_RUN) == missing | {"sgld-7"}


def test_every_published_row_has_its_part_in_the_printed_epsilon():
    rows = verdicts(world())
    assert rows["sgld-8a"]["comparisons"] == rows["sgld-8b"]["comparisons"] == len(PUBLISHED_RUNS)
    assert 0.02 < rows["sgld-8a"]["observed"] < 0.03
    assert rows["sgld-8b"]["observed"] == pytest.approx(7.2, abs=0.1)


@pytest.mark.parametrize("place", range(len(PUBLISHED_RUNS)))
def test_one_row_of_other_noise_would_turn_the_verdict_on_the_printed_epsilon(monkeypatch, place):
    runs = list(PUBLISHED_RUNS)
    runs[place] = dataclasses.replace(runs[place], sigma=1.1 * runs[place].sigma)
    monkeypatch.setattr(claims_exact, "PUBLISHED_RUNS", runs)
    refuted = with_verdict(verdicts(world()), NOT_REPRODUCED) - FALSE
    assert refuted >= {"sgld-8a", "sgld-8"}
    assert ("sgld-8b" in refuted) == (runs[place].dataset == "Pneumonia")


def test_what_the_theory_s_experiments_record_reproduces_the_exact_claims(monkeypatch):
    """A small law and few points of the curves: names and shapes are the experiments' own."""
    monkeypatch.setattr(losses_job, "POINTS", 5)
    monkeypatch.setattr(losses_job, "CALIBRATIONS", ("theorem",))
    monkeypatch.setattr(losses_job, "small_curves", lambda fields: [])
    monkeypatch.setattr(losses_job, "PUBLISHED_RUNS", ())
    common = {"key": "dp_sgld", "seed": 0, "noise_source": "keyed", "delta": 1e-5, "epsilon": 1.0}
    loss = {
        "n": 400,
        "batch": 40,
        "classes": 3,
        "feature_norm": 1.0,
        "lambda": 0.2,
        "epochs": 16,
        "schedules": ["constant"],
    }
    scan = {
        "n": 100,
        "ratios": [1, 100],
        "sigma2s": [0.02],
        "steps": [1, 5],
        "alphas": [2.0, 8.0],
        "etas": [0.5],
        "radius": 1.0,
    }
    groups = {}
    for kind, fields in (("privacy_loss", loss), ("counterexample", scan)):
        spec = Spec.of({**common, "kind": kind, **fields}, kind)
        of_kind = kind_of(spec)[1]
        typed = checked_fields(of_kind.spec, spec)
        outcome = of_kind.run(Job(spec, typed, None, "cpu", checkpoints=None, stopwatch=None))
        groups[kind] = [sample_record(typed, outcome.metrics)]
    rows = verdicts(groups)
    exact = {"sgld-6", "sgld-7", "sgld-8", "sgld-10"}
    assert {rows[name]["verdict"] for name in exact} == {REPRODUCED}
