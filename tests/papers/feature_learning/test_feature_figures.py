"""What the figures and the table of feature_learning show, on records with known laws."""

import math
import warnings
from functools import cache

import numpy as np
import pytest
from feature_records import (
    BASE,
    R0,
    RANDOM_RISK,
    SWEEPS,
    C,
    all_records,
    rate_law,
    simulation_record,
)
from figure_samples import drawn, maker, select, shown_rows

from dpatlas_workflow.papers.feature_learning.figures.laws import crossings, fitted
from dpatlas_workflow.statistics import mean_estimate


def show(name, records):
    return maker(name)(records, {})


@cache
def shown_risk():
    """Drawn once, for tests that only look at it."""
    return show("feature_risk", all_records())


def test_the_rate_is_recovered_along_n_and_epsilon():
    rows = select(shown_risk().rows, part="rate")
    assert {(row["link"], row["axis"]) for row in rows} == {
        ("mixed", "n"),
        ("odd", "n"),
        ("mixed", "epsilon"),
    }
    for row in rows:
        assert (row["R0"], row["c"]) == pytest.approx((R0, C))
        assert row["value"] == pytest.approx(rate_law(row))


@pytest.mark.parametrize(
    ("part", "changes"),
    [("rate", {"values": [1000, 2000]}), ("crossing", {"private": lambda point: 0.4})],
    ids=["too few points", "no meeting"],
)
def test_laws_that_do_not_apply_are_left_out(part, changes):
    shown = show("feature_risk", [simulation_record("n", **changes)])
    assert not select(shown.rows, part=part)


def test_slopes_are_fitted_run_by_run():
    record = simulation_record("n")
    exponents = (-0.1, -0.2, -0.6)
    for row in select(record.tables["rows"], features="private"):
        row["risk_private"] = row["n"] ** exponents[row["run"]]
    shown = show("feature_risk", [record])
    (row,) = select(shown.rows, part="slope", series="private")
    assert (row["least"], row["most"], row["points"]) == (500, 20_000, 5)
    estimate = mean_estimate(exponents)
    assert row["value"] == pytest.approx(-0.3)
    assert (row["low"], row["high"]) == pytest.approx(estimate.interval(0.95))


def test_the_power_of_the_theorem_starts_at_the_first_risk_of_a_ladder():
    """eps_p = 1, and degree 2 or 3."""
    rows = select(shown_risk().rows, part="theorem")
    for link, degree in (("mixed", 2), ("odd", 3)):
        along = select(rows, link=link)
        first = rate_law({**BASE, "d": 16, "n": 256, "p": 16})
        expected = [first * (d / 16) ** (-1 / (8 * degree)) for d in SWEEPS["ladder"]]
        assert [row["d"] for row in along] == SWEEPS["ladder"]
        assert [row["value"] for row in along] == pytest.approx(expected)


def test_a_crossing_is_found_with_its_number():
    shown = shown_risk()
    along_n = select(shown.rows, part="crossing", link="mixed", axis="n")
    along_epsilon = select(shown.rows, part="crossing", axis="epsilon")
    for (row,), axis in ((along_n, "n"), (along_epsilon, "epsilon")):
        assert row["value"] == pytest.approx(RANDOM_RISK)
        below = max(value for value in SWEEPS[axis] if value < row[axis])
        above = min(value for value in SWEEPS[axis] if value > row[axis])
        assert rate_law({**BASE, axis: below}) > RANDOM_RISK > rate_law({**BASE, axis: above})


def test_the_fit_is_that_of_least_squares_with_numbers_that_are_not_negative():
    rates, risks = [0.1, 0.5, 1.0, 3.0], [0.31, 0.55, 0.82, 1.79]
    assert fitted(rates, risks) == pytest.approx(np.polyfit(rates, risks, 1)[::-1])
    rates, risks = np.array([0.5, 1.0, 2.0]), np.array([0.1, 0.9, 2.1])
    through_zero = rates @ risks / (rates @ rates)
    assert fitted(rates, risks) == pytest.approx((0, through_zero))


def test_every_crossing_counts_and_one_at_a_point_once():
    at = [1, 10, 100]
    (meeting,) = crossings(at, [4 / x for x in at], [x**0.5 / 2 for x in at])
    assert meeting == pytest.approx((4.0, 1.0))
    at = [1.0, 2.0, 4.0, 8.0]
    meetings = crossings(at, [2.0, 1.0, 0.5, 2.0], [1.0] * 4)
    assert [x for x, _ in meetings] == pytest.approx([2.0, 4 * math.sqrt(2)])
    assert crossings(at[:2], [2.0, 3.0], [1.0, 1.0]) == crossings([], [], []) == []


@pytest.mark.parametrize(
    "records",
    [
        [simulation_record("n", values=[100], runs=1), simulation_record("p", values=[])],
        [simulation_record("n", sharing="shared")],
    ],
    ids=["one point and run", "shared records"],
)
@pytest.mark.parametrize("name", ["feature_overlap", "feature_risk"])
def test_few_points_and_shared_records_are_drawn_without_warnings(name, records):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = show(name, records)
        drawn(shown).draw_without_rendering()
        shown_rows(shown)
    assert len(shown.panels) == len(records)
