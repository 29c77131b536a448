"""How series of rows are drawn: the numbers and intervals of the rows, at their x."""

from dataclasses import replace

import numpy as np
import pytest
from figure_samples import drawn_heights, heights
from matplotlib.figure import Figure

from dpatlas.show.draw import draw_curves, draw_points, frame
from dpatlas.show.look import INITS

LOOKS = {name: INITS[name] for name in ("he", "lecun")}


def row(series, x, value, low=None, high=None, used=3, diverged=0):
    ends = {} if value is None else {"value": value, "low": low, "high": high}
    return {"series": series, "x": x, **ends, "runs_used": used, "runs_diverged": diverged}


# The first interval does not hold its value, as that of a maximum need not.
ROWS = [
    row("he", 1, 0.3, 0.4, 0.7),
    row("he", 2, 0.2, 0.1, 0.5, used=2, diverged=1),
    row("lecun", 1, 0.6),
    row("lecun", 2, None, used=0, diverged=3),
    row("lecun", 4, 0.9, 0.8, 1.1),
    row("not shown", 1, 5.0),
]


@pytest.fixture(params=["linear", "log"])
def axes(request):
    axes = Figure().subplots()
    axes.set(xscale=request.param, yscale=request.param, xlabel="depth")
    return axes


def test_points_are_values_with_the_intervals_of_their_rows_and_marks_of_divergence(axes):
    draw_points(axes, frame(ROWS), "x", LOOKS)
    drawn = drawn_heights(axes.figure)
    open_marker, cross = (0.2,), (0.97,)
    for line in ((0.3, 0.2), (0.4, 0.7), (0.1, 0.5), (0.6, 0.9), (0.8, 1.1), open_marker, cross):
        drawn.remove(heights(line))
    assert not drawn
    lines = {heights(line.get_ydata()): line for line in axes.get_lines()}
    for name, values in (("he", (0.3, 0.2)), ("lecun", (0.6, 0.9))):
        look, line = LOOKS[name], lines[values]
        style = (line.get_color(), line.get_marker(), line.get_linestyle())
        assert style == (look.color, look.marker, look.linestyle)
    # The line breaks at a value that no run is left for, and its cross stands beside its series.
    (gap,) = np.flatnonzero(np.isnan(lines[0.6, 0.9].get_ydata()))
    assert lines[0.6, 0.9].get_xdata()[gap] == lines[cross].get_xdata()[0]
    assert lines[open_marker].get_markerfacecolor() == "white"
    assert lines[cross].get_marker() == "X"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("depth", "")


@pytest.mark.parametrize("count", [1, 2, 7])
def test_marks_have_the_x_of_their_rows_and_their_ink_covers_it(axes, count):
    looks = {f"s{place}": replace(LOOKS["he"], label=f"s{place}") for place in range(count)}
    draw_points(axes, frame(row(name, 2, 0.5, 0.4, 0.6) for name in looks), "x", looks)
    assert {x for line in axes.get_lines() for x in line.get_xdata()} == {2}
    marks = [line for line in axes.get_lines() if line.get_marker() != "None"]
    at = axes.transData.transform((2, 0.5))
    half = marks[0].get_markersize() / 2 * axes.figure.dpi / 72
    aside = [line.get_transform().transform((2, 0.5)) - at for line in marks]
    assert all(abs(x) <= half + 1e-6 and abs(y) < 1e-6 for x, y in aside)
    assert len({round(x, 3) for x, _ in aside}) == count


def test_curves_of_which_some_runs_diverged_have_open_markers(axes):
    draw_curves(axes, frame(ROWS), "x", LOOKS, opened=True)
    draw_curves(axes, frame(ROWS[:1]), "x", {"he": LOOKS["he"]}, opened=True)
    fewer, lost, whole = (line.get_markerfacecolor() for line in axes.get_lines())
    assert fewer == lost == "white" and whole == LOOKS["he"].color
