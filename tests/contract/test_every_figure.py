"""Every figure: what a reader takes from its panels, axes, marks and intervals is so."""

import functools
import itertools
import json
import math

import numpy as np
import pytest
from block_worlds import sample_shown, samples_of, shown
from figure_samples import drawn, shown_rows

from dpatlas.base.records import RunsFields
from dpatlas_workflow.config.products import all_products
from dpatlas_workflow.show import output
from dpatlas_workflow.show.rows import LEAST_RUNS

FIGURES = [name for name, (product, _) in all_products().items() if product.kind == "figure"]
# Rows of the csv that stand in the notes, or in another way in a panel.
UNDRAWN = {
    "lpfft_feature_quality": lambda row: row["part"] == "early loss",
    "lpfft_theory": lambda row: row["panel"] == "outside the bracket",
    "feature_risk": lambda row: row["part"] == "slope",
    "sgld_along_n": lambda row: row["schedule"] != "constant",
    "sgld_counterexample": lambda row: row["panel"] == "region",
    "sgld_utility": lambda row: row["step"] > 50,
}
# Names of lines to compare with.
GUIDES = {"linear in steps"}
each_figure = pytest.mark.parametrize("name", FIGURES)


@functools.cache
def rows_and_chart(name):
    """The csv rows of a figure of made-up records, and its chart, which has the numbers drawn."""
    return shown_rows(sample_shown(name)), chart_of(name, sample_shown(name))


def chart_of(name, figure):
    """The chart, without the pictures beside it, which test_every_product draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "_pictures", lambda *_: {})
        return json.loads(output.figure_files(name, figure, "trial")[f"{name}.json"])


@each_figure
def test_every_panel_has_a_title_and_none_shows_what_another_does(name):
    _, chart = rows_and_chart(name)
    # A panel may hold a legend alone.
    panels = [panel for panel in chart["panels"] if panel.keys() & {"series", "spans", "pictures"}]
    said = [(panel["title"] or panel.get("under", ""), *labels(panel)) for panel in panels]
    assert len(panels) == 1 or all(title for title, _, _ in said), said
    assert len(set(said)) == len(said), said


def labels(panel):
    return panel["x"]["label"], panel["y"]["label"]


@each_figure
def test_a_name_stands_once_in_a_legend(name):
    _, chart = rows_and_chart(name)
    for key in (chart["key"], *(panel.get("key", []) for panel in chart["panels"])):
        names = [entry["label"] for entry in key]
        assert len(set(names)) == len(names)


@each_figure
def test_panels_of_the_same_quantities_have_the_same_axes(name):
    _, chart = rows_and_chart(name)
    for one, two in itertools.combinations(chart["panels"], 2):
        if labels(one) == labels(two) and one["x"]["ticks"] and all(labels(one)):
            assert one["y"]["ends"] == two["y"]["ends"], (one["title"], two["title"], labels(one))


@each_figure
def test_marks_stand_at_an_x_of_the_csv_or_at_a_name(name):
    rows, chart = rows_and_chart(name)
    known = np.array([float(cell) for row in rows for cell in row.values() if is_number(cell)])
    for panel in chart["panels"]:
        ticks = panel["x"]["ticks"]
        named = [at for at, text in ticks if not is_number(text.replace("−", "-"))]
        for series in panel.get("series", []):
            if "marker" in series:
                for x in (x for x in series["x"] if x is not None):
                    # A chart has five digits.
                    assert np.isclose(x, [*known, *named], rtol=1e-4).any(), (panel["title"], x)


def is_number(text):
    try:
        return math.isfinite(float(text))
    except (TypeError, ValueError):
        return False


@each_figure
def test_the_csv_holds_the_numbers_that_are_drawn_with_their_intervals_and_no_other(name):
    figure, kept = sample_shown(name), UNDRAWN.get(name, lambda row: False)
    rows = [row for row in figure.rows if row.get("value") is not None and not kept(row)]
    if "value" not in figure.columns:
        return
    named = (each for panel in figure.panels for each in panel.series if each.look.label)
    series = [each for each in named if each.look.label not in GUIDES and not each.edge]
    drawn_points = {
        rounded(y, *(ends[place] if ends else math.nan for ends in (each.low, each.high)))
        for each in series
        for place, y in enumerate(each.y)
    }
    assert {
        rounded(*map(row.get, ("value", "low", "high"))) for row in rows
    } - drawn_points == set()
    known = {
        rounded(number)[0] for row in figure.rows for number in row.values() if is_number(number)
    }
    assert {number for point in drawn_points for number in point if number is not None} <= known


def rounded(*numbers):
    """Numbers to ten digits, None for nan."""
    known = [None if number is None or math.isnan(number) else number for number in numbers]
    return tuple(number and float(f"{number:.10g}") for number in known)


@each_figure
def test_no_interval_is_drawn_of_fewer_than_three_runs(name):
    few = [
        each.cut(min(each.spec.runs, LEAST_RUNS - 1)) if isinstance(each.spec, RunsFields) else each
        for each in samples_of(name)[0]
    ]
    figure = shown(name, few)
    of_few = [row for row in figure.rows if 0 < (row.get("runs_used") or 0) < LEAST_RUNS]
    assert all(row.get("low") is row.get("high") is None for row in of_few)
    drawn(figure)
    assert (output.FEW_NOTE in chart_of(name, figure)["notes"]) == bool(of_few)
