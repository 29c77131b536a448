"""What the picture of a figure has: what its description says, and nothing else."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from figure_samples import drawn, drawn_heights, heights, smallest_text
from matplotlib.text import Text

from dpatlas_workflow.show.look import INITS, Look
from dpatlas_workflow.show.panel import (
    Axis,
    Legend,
    Panel,
    PanelGrid,
    ShownFigure,
    accuracy,
    names,
    points,
    series,
)
from dpatlas_workflow.show.plot import fitting

LOOKS = {name: INITS[name] for name in ("he", "lecun")}


def row(name, x, value, low=None, high=None, used=3, diverged=0):
    ends = {} if value is None else {"value": value, "low": low, "high": high}
    return {"series": name, "x": x, **ends, "runs_used": used, "runs_diverged": diverged}


# The first interval does not hold its value, as that of a maximum need not.
ROWS = [
    row("he", 2, 0.2, 0.1, 0.5, used=2, diverged=1),
    row("he", 1, 0.3, 0.4, 0.7),
    row("lecun", 1, 0.6),
    row("lecun", 2, None, used=0, diverged=3),
    row("lecun", 4, 0.9, 0.8, 1.1),
    row("not shown", 1, 5.0),
]


def figure_of(*lines, height=3.0, **options):
    return drawn(ShownFigure([PanelGrid(lines, height, **options)], (), [], []))


def axes_of(panel, **options):
    return figure_of([panel], **options).axes[0]


@pytest.mark.parametrize("log", [False, True])
def test_points_are_values_with_the_intervals_of_their_rows_and_marks_of_divergence(log):
    axis = Axis("depth", log=log)
    axes = axes_of(Panel("", axis, Axis(log=log), points(ROWS, "x", LOOKS)))
    open_marker, cross = (0.2,), (0.97,)
    shown = [(0.3, 0.2), (0.6, 0.9), open_marker, cross]
    assert sorted(drawn_heights(axes.figure)) == sorted(shown)
    paths = [path for lines in axes.collections for path in lines.get_paths()]
    bars = {heights(path.vertices[:, 1]) for path in paths}
    assert bars - {()} == {(0.4, 0.7), (0.1, 0.5), (0.8, 1.1)}
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
def test_marks_have_the_x_of_their_rows_and_their_ink_covers_it(count):
    looks = {f"s{place}": replace(LOOKS["he"], label=f"s{place}") for place in range(count)}
    rows = [row(name, 2, 0.5, 0.4, 0.6) for name in looks]
    axes = axes_of(Panel(series=points(rows, "x", looks)))
    assert {x for line in axes.get_lines() for x in line.get_xdata()} == {2}
    marks = [line for line in axes.get_lines() if line.get_marker() != "None"]
    at = axes.transData.transform((2, 0.5))
    half = marks[0].get_markersize() / 2 * axes.figure.dpi / 72
    aside = [line.get_transform().transform((2, 0.5)) - at for line in marks]
    assert all(abs(x) <= half + 1e-6 and abs(y) < 1e-6 for x, y in aside)
    assert len({round(x, 3) for x, _ in aside}) == count


def test_a_band_has_the_intervals_and_some_points_alone_have_markers():
    rows = [row("he", x, 1.0 + x, 1.0, 3.0 + x) for x in range(7)]
    (curve,) = series(rows, "x", LOOKS, band=True, every=(3, 1))
    axes = axes_of(Panel(series=[curve]))
    (line,), (band,) = axes.get_lines(), axes.collections
    assert line.get_markevery() == (1, 3)
    ends = {tuple(point) for path in band.get_paths() for point in path.vertices.tolist()}
    assert ends >= {(x, y) for x in range(7) for y in (1.0, 3.0 + x)}


def test_panels_with_one_axis_have_its_ends_and_its_words_stand_once():
    x, y = Axis("depth"), accuracy()
    low, high = (
        Panel("t", x, y, series([row("he", 1, at), row("he", 9, at)], "x", LOOKS))
        for at in (0.2, 0.9)
    )
    other = replace(low, y=replace(y, of="other"))
    figure = figure_of([low, high], [other, low])
    first, second, different, last = (axes.get_ylim() for axes in figure.axes)
    assert first == second == last != different
    labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]
    assert labels == [("", y.label), ("", ""), ("depth", y.label), ("depth", y.label)]
    # A line of panels has its words unless all of them have them below.
    figure = figure_of([low, high], [low, None])
    assert [axes.get_xlabel() for axes in figure.axes] == ["depth"] * 3


@pytest.mark.parametrize(
    ("axis", "numbers", "ends"),
    [
        (Axis(), [0.0, 10.0], (-0.5, 10.5)),
        (Axis(log=True), [1.0, 100.0, -3.0], (10**-0.1, 10**2.1)),
        (Axis(ends=(0, None)), [1.0, 11.0], (0, 11.5)),
        (accuracy(), [-1.0, 2.0], (-0.02, 1.02)),
        (Axis(ticks=[10]), [10.0, 10.0], (9.5, 10.5)),
        (Axis(log=True, ticks=[10]), [10.0], (10**0.5, 10**1.5)),
        (names("abc"), [0.0, 2.0], (-0.5, 2.5)),
    ],
)
def test_an_axis_holds_its_numbers(axis, numbers, ends):
    assert axis.around([*numbers, math.nan]) == pytest.approx(ends)


def test_ticks_that_have_no_room_are_left_out_and_names_are_not():
    axis = Axis(log=True, ticks=[1, 2, 3, 1000, 16000])
    assert list(fitting(axis, (0.5, 32000), 4.0).values()) == ["16000", "1000", "3", "2", "1"]
    assert list(fitting(axis, (0.5, 32000), 0.8)) == [16000, 3]
    assert len(fitting(names(["first name", "second name"]), (-0.5, 1.5), 0.1)) == 2


def test_names_of_curves_keep_the_order_of_their_ends_and_do_not_overlap():
    ends = {"c": 10.0, "a": 1e-3, "b\nin two lines": 9.9, "d": 10.1}
    looks = {name: Look(name, "black") for name in ends}
    rows = [row(name, x, value) for name, end in ends.items() for x, value in ((1, 1.0), (2, end))]
    shared = Panel("", Axis(), Axis(log=True), series(rows, "x", looks), legend="ends")
    figure = figure_of([shared, shared], height=2.2)
    assert smallest_text(figure) >= 5
    left, right = figure.axes
    texts = sorted(right.texts, key=lambda text: text.get_position()[1])
    assert [text.get_text() for text in texts] == ["a", "b\nin two lines", "c", "d"]
    boxes = [Text.get_window_extent(text) for text in texts]
    assert all(above.y0 >= below.y1 - 1 for below, above in pairwise(boxes))
    assert texts[0].get_position()[1] == pytest.approx(texts[0].xy[1])
    # The panel beside it shares them.
    assert not left.texts


def test_a_legend_above_all_panels_has_each_name_once_and_those_of_panels_stay_there():
    shown = [row(name, x, 1.0) for name in LOOKS for x in (1, 2)]
    panel = Panel(series=series(shown, "x", LOOKS))
    own = replace(panel, legend=Legend(heading="mine"))
    figure = figure_of([panel, panel, own])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["He", "LeCun"]
    assert figure.axes[2].get_legend().get_title().get_text() == "mine"
    assert not figure_of([own]).legends
