"""Every rule against runs whose truth is known, through the committed claims.yaml."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from block_worlds import worlds_of
from figure_samples import select

from dpatlas.base.files import read_rows
from dpatlas_workflow.evidence.looks import LOOKS
from dpatlas_workflow.evidence.verdicts import INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED
from dpatlas_workflow.report.index import Index

worlds = worlds_of("kl_privacy")
PROJECT = Path(__file__).resolve().parents[3]


def more_kl_at_the_first_step(step):
    return 400 if step == 1 else 1.0


def more_kl_at_the_first_share(groups):
    record = worlds.find(groups, "linearized", "he")
    for row in select(record.tables["shares"], depth=4, share=0.01):
        row["kl_watched"] *= 10


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        # Ten times the bound at the first step, a hundredth of that at the last.
        (worlds.scaled("bounds", "he", more_kl_at_the_first_step, 0.1, "kl_watched"), "kl-6a"),
        # Far above a hundredth of the budget in the first hundredth of the time.
        (more_kl_at_the_first_share, "kl-6b"),
    ],
)
def test_a_change_at_one_place_is_seen_there(change, entry):
    assert worlds.row_of(worlds.changed(change), entry)["verdict"] == NOT_REPRODUCED


def test_the_watched_record_is_compared_by_its_own_gap():
    groups = worlds.true_groups()
    tables = worlds.find(groups, "bounds", "he").tables
    for row in tables["runs"]:
        row["gap_watched"] *= 1e6
    for row in tables["curves"]:
        row["kl_watched"] *= 1e6
    assert worlds.row_of(worlds.paper(groups), "kl-6a")["verdict"] == REPRODUCED


def test_steps_at_which_the_bound_overflows_are_left_out():
    groups = worlds.true_groups()
    usual = worlds.row_of(worlds.paper(groups), "kl-6a")["comparisons"]
    for row in worlds.find(groups, "bounds", "he").tables["probe"]:
        row["gradient_change"] *= 100.0 if row["step"] > 1 else 1.0
    row = worlds.row_of(worlds.paper(groups), "kl-6a")
    assert row["verdict"] == REPRODUCED and row["comparisons"] < usual


def test_a_record_that_was_picked_from_the_runs_shows_a_bound_and_refutes_none():
    """The mean of the runs' largest KL may lie above a bound that every record's mean obeys."""
    groups = worlds.true_groups()
    for row in worlds.find(groups, "linearized", "he").tables["shares"]:
        row["kl_max"] *= 100
    row = worlds.row_of(worlds.paper(groups), "kl-6b")
    assert row["verdict"] == INCONCLUSIVE
    assert "largest" in row["note"]


def test_the_bound_of_a_run_has_the_run_s_own_initial_gap():
    """KL that follows each run's gap is as far below the bound in every run, whatever the gaps."""
    groups = worlds.true_groups()
    record = worlds.find(groups, "bounds", "lecun")
    factors = 1e6 * np.random.default_rng(5).lognormal(0, 1.5, worlds.RUNS)
    runs = record.tables["runs"]
    for rows, names in (
        (runs, ("gap_max", "gap_watched")),
        (record.tables["curves"], ("kl_max", "kl_watched")),
    ):
        for row, name in itertools.product(rows, names):
            row[name] *= factors[row["run"]]
    row = worlds.row_of(worlds.paper(groups), "kl-6a")
    assert row["verdict"] == REPRODUCED
    # Half of LR step gap / (4 sigma^2), where the bound is 2 LR step gap / (4 sigma^2) and a rest
    # that so large a gap leaves far behind.
    assert row["observed"] == pytest.approx(1 / 4, rel=0.05)
    gaps = [row["gap_max"] for row in runs]
    for row, gap in zip(runs, reversed(gaps), strict=True):
        row["gap_max"] = gap
    assert worlds.row_of(worlds.paper(groups), "kl-6a")["verdict"] == INCONCLUSIVE


@pytest.mark.parametrize(
    ("group", "init", "spec", "touched"),
    [
        ("early", "he", {}, {"kl-1", "kl-1b"}),
        ("depth", "ntk", {"depth": 6}, {"kl-5", "kl-5c"}),
        ("bounds", "he", {}, {"kl-6", "kl-6a"}),
    ],
)
def test_a_diverged_run_makes_what_needs_it_inconclusive_and_is_named(group, init, spec, touched):
    groups = worlds.true_groups()
    record = worlds.find(groups, group, init, **spec)
    record.tables["runs"][2]["diverged"] = 17
    for row in select(record.tables["curves"], run=2):
        row |= {"kl_max": None, "kl_watched": None, "loss": None}
    rows = worlds.verdicts(worlds.paper(groups))
    found = {name for name, row in rows.items() if row["verdict"] == INCONCLUSIVE}
    assert found == touched
    for entry in touched - {"kl-1", "kl-5", "kl-6"}:
        assert f"1 of {LOOKS[0]} runs of {record.condition} diverged" in rows[entry]["note"]
        assert rows[entry]["runs"] == LOOKS[0] - 1


def test_the_paper_s_page_says_at_how_many_steps_kl_6a_has_a_finite_bound():
    published = PROJECT / "docs/results/embedded"
    rows = {row["claim"]: row for row in read_rows(published / "claims.csv")}
    specs = [each["spec"] for each in Index(published).published["records"].values()]
    (shown,) = {
        len(spec["shown_steps"])
        for spec in specs
        if (spec["key"], spec["kind"]) == ("kl_privacy", "training") and spec["lr"] == 1e-5
    }
    # The largest and the watched record, of each init at every step where the bound is finite.
    tested = int(rows["kl-6a"]["comparisons"]) // 2
    assert (shown, tested) == (26, 3 * 26 + 2)
    text = (PROJECT / "src/dpatlas_workflow/papers/kl_privacy/README.md").read_text()
    assert "kl-6a tests two of its 26 shown steps" in " ".join(text.split())
