"""What the figures of kl_privacy show of small records, and the bound of Lemma 3.2 in them."""

import dataclasses

import numpy as np
import pytest
from figure_samples import blocks_of, maker, select
from kl_sample_records import (
    RECORDS,
    RUNS,
    SETTINGS,
    constants_record,
    depth_sweep,
    linearized_record,
    training_record,
)

from dpatlas.base.records import rows_of
from dpatlas.errors import InputError
from dpatlas.formulas.kl_privacy.theorems import kl_drift_integral
from dpatlas_workflow.papers.kl_privacy.figures.rows import training_rows
from dpatlas_workflow.papers.kl_privacy.readings import drift_constants, largest_means
from dpatlas_workflow.records import joined
from dpatlas_workflow.statistics import mean_estimate


def show(name, records=None, settings=SETTINGS):
    records = RECORDS[name]() if records is None else records
    return maker(name)(records, settings)


def test_kl_is_the_mean_of_the_largest_with_its_interval_above_the_largest_mean():
    records = depth_sweep()
    rows = {
        (row["quantity"], row["init"], row["depth"], row["horizon"]): row
        for row in show("kl_vs_depth", records).rows
    }
    for record in records:
        spec = record.spec
        for name in ("short", "long"):
            condition, step = (spec.init, spec.depth, name), SETTINGS["horizons"][name]
            kl = [row["kl_max"] for row in select(record.tables["curves"], step=step)]
            estimate = mean_estimate(kl)
            half = (estimate.interval(0.95)[1] - estimate.value) / estimate.value
            row = rows["kl_mean", *condition]
            drawn = [row["value"], row["low"], row["high"]]
            np.testing.assert_allclose(drawn, estimate.value * np.exp([0, -half, half]))
            assert row["runs"] == [record.id]
            # The sample's worst record is the same in all runs.
            worst = rows["kl_worst", *condition]["value"]
            assert worst == pytest.approx(np.mean(kl))


def test_blocks_of_runs_show_what_one_record_of_all_runs_does():
    whole = training_record("he", runs=4)
    first, second = blocks = blocks_of(whole, 2)
    for block in blocks:
        for row in block.tables["by_record"]:
            row |= {"runs": 2, "run": max(block.spec.run_numbers)}
            row["sums"] = [value / 2 for value in row["sums"]]
    (together,) = joined([second, first])
    assert together.ids == (first.id, second.id)
    for quantity in ("kl_mean", "kl_worst", "training_loss"):
        shown, of_whole = (training_rows([each], quantity) for each in (together, whole))
        for row, same in zip(shown, of_whole, strict=True):
            assert row["step"] == same["step"]
            assert row["value"] == pytest.approx(same["value"], rel=1e-12)
    # The sums of a block are those of all its runs.
    assert largest_means([together.cut(3)]).kl_worst.notna().all()
    assert largest_means([together.cut(1)]).empty


@pytest.mark.parametrize("lost", [1, RUNS])
def test_conditions_that_lost_runs_are_marked_and_named(lost):
    shown = show("kl_vs_depth", depth_sweep(diverged={("he", 3): lost}))
    marked = [row for row in shown.rows if row["runs_diverged"]]
    # The largest KL, the largest mean and the loss, short and long.
    assert len(marked) == 6
    for row in marked:
        assert (row["init"], row["depth"], row["runs_used"]) == ("he", 3, RUNS - lost)
        assert ("value" in row) == (lost < RUNS)
    marked = [row for row in marked if row["quantity"] != "kl_worst"]
    series = [each for panel in shown.panels for each in panel.series]
    opened = {y for each in series if each.look.fill == "none" for y in each.y}
    assert opened == {row["value"] for row in marked if "value" in row}
    assert sum(each.edge for each in series) == (4 if lost == RUNS else 0)
    assert f"He, runs diverged: {lost} of {RUNS} at depth 3" in shown.notes


def test_bounds_follow_lemma_and_corollary_under_both_conventions():
    shown = show("kl_bounds")
    rows = {
        (row["init"], row["network"], row["quantity"], row.get("step", row.get("share"))): row
        for row in shown.rows
    }
    for record in RECORDS["kl_bounds"]():
        init = record.spec.init
        if record.kind == "training":
            network, steps = "trained", range(1, 9)
            bound = [drift_constants(record).kl_bound(1e-3 * k, "exact") for k in steps]
        else:
            network, steps = "linearized", [0.01, 0.1, 1.0]
            bound = [share * record.spec.epsilon for share in steps]
            paper = [rows[init, network, "bound_paper", step]["value"] for step in steps]
            np.testing.assert_allclose(paper, 2 * np.array(bound))
        exact = [rows[init, network, "bound_exact", step]["value"] for step in steps]
        np.testing.assert_allclose(exact, bound)
        for step in steps:
            estimates = [rows[init, network, f"estimate_{c}", step] for c in ("exact", "paper")]
            assert estimates[1]["value"] == 2 * estimates[0]["value"]


@pytest.mark.parametrize(
    ("name", "records", "words"),
    [
        ("kl_vs_depth", [constants_record()], "kind training"),
        ("kl_vs_depth", [*depth_sweep(), training_record("he")], "each once"),
        ("kl_vs_depth", [*depth_sweep(), training_record(depth=7, sigma=1.0)], "sigma"),
        ("kl_vs_depth", [training_record(steps=6)], "at least 8 steps"),
        ("kl_bounds", [training_record("he"), linearized_record("ntk")], "same inits"),
    ],
)
def test_records_that_are_no_one_sweep_or_of_other_inits_are_refused(name, records, words):
    with pytest.raises(InputError, match=words):
        show(name, records)


def record(change, distance):
    """A training record with these probes, each a list per run."""
    sample = training_record("he", runs=len(change))
    axes = {"run": range(len(change)), "step": [1, 2, 4]}
    probe = rows_of(axes, gradient_change=change, distance=distance)
    return dataclasses.replace(sample, tables={**sample.tables, "probe": probe})


RECORD = record([[0.5, 0.9, 1.2], [0.7, 0.6, 1.0]], [[0.1, 0.3, 0.5], [0.1, 0.3, 0.4]])


def test_constants_cover_every_change_that_was_probed():
    constants = drift_constants(RECORD)
    assert constants.c == 0.7
    assert constants.beta == pytest.approx(3.0)
    for row in RECORD.tables["probe"]:
        covered = max(constants.c, constants.beta * row["distance"])
        assert row["gradient_change"] <= covered + 1e-12


def test_kl_bound_is_the_drift_integral_over_four_or_two_sigma2():
    constants = drift_constants(RECORD)
    for convention, denominator in (("exact", 4), ("paper", 2)):
        integral = kl_drift_integral(0.2, **dataclasses.asdict(constants), convention=convention)
        expected = integral / (denominator * 0.1**2)
        assert constants.kl_bound(0.2, convention) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (training_record(diverged=RUNS), "did not diverge"),
        (training_record(steps=2), "at least 3 steps"),
    ],
)
def test_records_without_constants_are_refused(bad, message):
    with pytest.raises(InputError, match=message):
        drift_constants(bad)
