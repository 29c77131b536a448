"""What the figures of kl_privacy show of small records, and the bound of Lemma 3.2 in them."""

import dataclasses

import pytest
from figure_samples import blocks_of, maker
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
from dpatlas_workflow.papers.kl_privacy.readings import drift_constants, largest_means
from dpatlas_workflow.records import joined


def show(name, records=None, settings=SETTINGS):
    records = RECORDS[name]() if records is None else records
    return maker(name)(records, settings)


def test_the_worst_record_is_that_of_the_runs_of_all_blocks_that_are_read():
    whole = training_record("he", runs=4)
    blocks = blocks_of(whole, 2)
    for block in blocks:
        for row in block.tables["by_record"]:
            row |= {"runs": 2, "run": max(block.spec.run_numbers)}
            row["sums"] = [value / 2 for value in row["sums"]]
    (together,) = joined(blocks[::-1])
    worst, of_whole = (largest_means([each]).kl_worst for each in (together, whole))
    assert list(worst) == pytest.approx(list(of_whole), rel=1e-12)
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


def test_constants_cover_every_change_that_was_probed_and_bound_the_kl():
    sample = training_record("he", runs=2)
    probe = rows_of(
        {"run": [0, 1], "step": [1, 2, 4]},
        gradient_change=[[0.5, 0.9, 1.2], [0.7, 0.6, 1.0]],
        distance=[[0.1, 0.3, 0.5], [0.1, 0.3, 0.4]],
    )
    record = dataclasses.replace(sample, tables={**sample.tables, "probe": probe})
    constants = drift_constants(record)
    assert constants.c == 0.7
    assert constants.beta == pytest.approx(3.0)
    for row in probe:
        covered = max(constants.c, constants.beta * row["distance"])
        assert row["gradient_change"] <= covered + 1e-12
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
