"""What the figures of kl_privacy show, on small synthetic records."""

from itertools import product

import numpy as np
import pytest
from figure_samples import heights, in_style, maker, names_of, not_in_rows, shown_rows
from kl_sample_records import (
    INITS,
    RECORDS,
    RUNS,
    SETTINGS,
    constants_record,
    depth_sweep,
    linearized_record,
    training_record,
)

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.drift_constants import drift_constants
from dpatlas.papers.kl_privacy.formulas.theorems import lazy_distance, lazy_distance_corrected

FIGURES = names_of("kl_privacy", "figure")
# Lines that are no data: the slope of linear growth.
GUIDES = {"kl_vs_epochs": 1}


def show(name, records=None, settings=SETTINGS):
    records = RECORDS[name]() if records is None else records
    return in_style(maker(name), records, settings)


def series_of(shown):
    """Rows of the csv by what tells the lines of a figure apart."""
    series = {}
    for row in shown_rows(shown):
        keys = ("init", "network", "horizon", "quantity")
        series.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return list(series.values())


@pytest.mark.parametrize("name", FIGURES)
def test_csv_holds_exactly_the_lines_and_intervals_that_are_drawn(name):
    shown = show(name)
    assert len(not_in_rows(shown.figure, series_of(shown))) == GUIDES.get(name, 0)


def test_kl_is_the_worst_record_with_its_stored_interval_at_each_horizon():
    records = depth_sweep()
    rows = {
        (row["init"], row["depth"], row["horizon"]): row
        for row in show("kl_vs_depth", records).rows
        if row["quantity"] == "kl_worst"
    }
    for record in records:
        spec, kl = record.spec, record.metrics.kl
        for name in ("short", "long"):
            row, step = rows[spec.init, spec.depth, name], SETTINGS["horizons"][name]
            assert (row["value"], row["low"], row["high"]) == (
                kl.worst[step - 1],
                kl.low[step - 1],
                kl.high[step - 1],
            )
            assert row["runs"] == [record.id]


@pytest.mark.parametrize("lost", [1, RUNS])
def test_conditions_that_lost_runs_are_marked_and_named(lost):
    shown = show("kl_vs_depth", depth_sweep(diverged={("he", 3): lost}))
    marked = [row for row in shown.rows if row["runs_diverged"]]
    assert len(marked) == 4
    for row in marked:
        assert (row["init"], row["depth"], row["runs_used"]) == ("he", 3, RUNS - lost)
        assert ("value" in row) == (lost < RUNS)
    lines = [line for axes in shown.figure.axes for line in axes.get_lines()]
    in_white = [line for line in lines if line.get_markerfacecolor() == "white"]
    drawn = {height for line in in_white for height in heights(line.get_ydata())}
    assert drawn == set(heights(row.get("value") for row in marked))
    crosses = [line for line in lines if line.get_marker() == "X" and heights(line.get_ydata())]
    assert len(crosses) == (4 if lost == RUNS else 0)
    assert f"He, runs diverged: {lost} of {RUNS} at depth 3" in shown.notes


def test_bounds_follow_lemma_and_corollary_under_both_conventions():
    shown = show("kl_bounds")
    rows = {(row["init"], row["network"], row["quantity"], row["step"]): row for row in shown.rows}
    for record in RECORDS["kl_bounds"]():
        init = record.spec.init
        if record.kind == "training":
            network, steps = "trained", range(1, 9)
            bound = [drift_constants(record).kl_bound(1e-3 * k, "exact") for k in steps]
        else:
            middle = record.metrics.depths[1]
            network, steps, bound = "linearized", middle.shown_steps, middle.kl_bound
            paper = [rows[init, network, "bound_paper", step]["value"] for step in steps]
            np.testing.assert_allclose(paper, 2 * np.array(bound))
        exact = [rows[init, network, "bound_exact", step]["value"] for step in steps]
        np.testing.assert_allclose(exact, bound)
        for step in steps:
            estimates = [rows[init, network, f"estimate_{c}", step] for c in ("exact", "paper")]
            assert estimates[1]["value"] == 2 * estimates[0]["value"]


def test_the_table_has_every_init_and_the_distance_formulas_at_the_records_settings():
    rows = show("kl_constants").rows
    symbols = [row for row in rows if row["part"] == "symbols"]
    assert [row["init"] for row in symbols] == list(INITS)
    distances = [row for row in rows if row["part"] == "R"]
    assert {(row["init"], row["depth"]) for row in distances} == set(product(INITS, (2, 3, 4)))
    for row in distances:
        network = (row["init"], 4, 8, row["depth"], 20)
        assert row["R_printed_value"] == lazy_distance(*network)
        assert row["R_corrected_value"] == lazy_distance_corrected(*network)


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([constants_record()], "kind training"),
        ([*depth_sweep(), training_record("he")], "each once"),
        ([*depth_sweep(), training_record(depth=7, sigma=1.0)], "sigma"),
        ([training_record(steps=6)], "at least 8 steps"),
    ],
)
def test_records_that_are_no_one_sweep_are_refused(records, words):
    with pytest.raises(InputError, match=words):
        show("kl_vs_depth", records)


def test_bounds_of_other_inits_than_those_measured_are_refused():
    with pytest.raises(InputError, match="same inits"):
        show("kl_bounds", [training_record("he"), linearized_record("ntk")])
