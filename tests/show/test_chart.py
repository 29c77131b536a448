"""What the chart of a figure has: the numbers that were drawn, and nothing else."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
import seaborn as sns
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpatlas.show.chart import TRACKS, chart_of, ticks_between, words
from dpatlas.show.draw import draw_curves, draw_points, draw_printed, frame, printed_handle
from dpatlas.show.look import Look
from dpatlas.show.panels import label_ends, percent_axis
from dpatlas.show.series import handle

LOOKS = {"a": Look("one $\\sigma^2$", "#0072B2", "o", "-"), "b": Look("two", "#D55E00", "s", "--")}


def rows():
    """Two series at depths 2, 4 and 8 with intervals; of one point every run diverged."""
    values = [("a", 2, 1.5), ("a", 4, 2.5), ("a", 8, 20.0), ("b", 2, 3.0), ("b", 8, 4.0)]
    shown = [
        {"series": name, "x": x, "value": y, "low": y / 2, "high": 2 * y, "runs_used": 3}
        for name, x, y in values
    ]
    lost = {"series": "b", "x": 4, "value": math.nan, "runs_used": 0, "runs_diverged": 3}
    return frame([*shown, lost])


def chart(draw, log=False, **size):
    figure = Figure(figsize=(4, 3), layout="constrained")
    axes = figure.subplots(**size)
    if log:
        axes.set_yscale("log")
    draw(axes)
    figure.legend(handles=[handle(look) for look in LOOKS.values()], loc="outside upper center")
    figure.draw_without_rendering()
    made = chart_of(figure, ["ten runs"])
    json.dumps(made, allow_nan=False)
    return made


def by_name(panel, name):
    """The series of a look: its number is its place in the legend."""
    place = list(LOOKS).index(name)
    return [each for each in panel["series"] if place in each["key"]]


def test_points_come_with_their_intervals_and_names():
    made = chart(lambda axes: draw_points(axes, rows(), "x", LOOKS))
    (panel,) = made["panels"]
    assert [entry["label"] for entry in made["key"]] == ["one σ^{2}", "two"]
    first = by_name(panel, "a")[0]
    assert first["y"] == [1.5, 2.5, 20]
    assert first["low"] == [0.75, 1.25, 10] and first["high"] == [3, 5, 40]
    second = by_name(panel, "b")[0]
    assert [second["y"][0], second["y"][-1]] == [3, 4]
    # At 2, 4 and 8, the ink of the first on the left.
    assert first["x"] == [2, 4, 8] and second["x"] == [2, 4, 8]
    assert first["aside"] == -second["aside"] < 0


def test_points_of_single_runs_have_no_intervals():
    def draw(axes):
        axes.errorbar([1.0, 2.0], [0.0, 1.0], yerr=[math.nan, math.nan], fmt="o", color="#0072B2")

    (panel,) = chart(draw)["panels"]
    (series,) = panel["series"]
    assert series["y"] == [0, 1]
    assert "low" not in series or set(series["low"]) == {None}


def test_markers_that_are_open_or_filled_by_half_find_their_own_name():
    styles = {"none": {"fillstyle": "none"}, "bottom": {"fillstyle": "bottom"}, "full": {}}

    def draw(axes):
        for place, style in enumerate(styles.values()):
            axes.plot([place], [1.0], "o", color="#0072B2", markerfacecoloralt="white", **style)
        handles = [
            Line2D([], [], linestyle="none", marker="o", color="0.5", label=name, **style)
            for name, style in list(styles.items())[:2]
        ]
        axes.legend(handles=handles)

    (panel,) = chart(draw)["panels"]
    names = [entry["label"] for entry in panel["key"]]
    found = [[names[key] for key in each["key"] if key < 2] for each in panel["series"]]
    assert found == [["none"], ["bottom"], []]
    assert [each["open"] for each in panel["series"]] == [True, "bottom", False]


def test_scattered_points_have_their_markers_and_a_legend_its_heading():
    points = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.5], "class": list("aba")})
    palette, markers = {"a": "#0072B2", "b": "#D55E00"}, {"a": "s", "b": "P"}

    def draw(axes):
        sns.scatterplot(
            points,
            x="x",
            y="y",
            hue="class",
            style="class",
            palette=palette,
            markers=markers,
            ax=axes,
        )
        axes.scatter([1.0], [0.2], color="#009E73")
        axes.get_legend().set_title("digits")

    (panel,) = chart(draw)["panels"]
    assert [each["marker"] for each in panel["series"]] == ["s", "P", "o"]
    assert [each["x"] for each in panel["series"]] == [[0, 2], [1], [1]]
    heading, *entries = panel["key"]
    assert heading == {"label": "digits"} and [each["label"] for each in entries] == ["a", "b"]
    assert [[key for key in each["key"] if key < 3] for each in panel["series"]] == [[1], [2], []]


def test_where_every_run_diverged_a_cross_stands_at_the_edge_and_has_no_value():
    (panel,) = chart(lambda axes: draw_points(axes, rows(), "x", LOOKS))["panels"]
    (cross,) = [each for each in panel["series"] if each.get("edge")]
    assert cross["marker"] == "X"
    assert [y is not None for y in cross["y"]].count(True) == 1


def test_a_band_is_the_interval_of_its_line():
    data = rows()[lambda each: each.runs_used > 0]
    (panel,) = chart(lambda axes: draw_curves(axes, data, "x", LOOKS))["panels"]
    (first,) = by_name(panel, "a")
    assert first["band"] and first["x"] == [2, 4, 8]
    assert first["low"] == [0.75, 1.25, 10] and first["high"] == [3, 5, 40]


def test_the_other_scale_is_offered_where_numbers_are_positive_and_far_apart():
    def panel(low, high, log):
        values = pd.DataFrame({"x": [1.0, 2.0], "y": [low, high]})
        made = chart(lambda axes: axes.plot(values.x, values.y, color="#0072B2"), log)
        return made["panels"][0]["y"]

    assert panel(1, 100, False)["other"]["log"] is True
    assert panel(1, 100, True)["other"]["log"] is False
    assert panel(1, 100, True)["other"]["ends"][0] == 0
    assert "other" not in panel(0.97, 0.98, False)
    assert "other" not in panel(-1, 100, False)


def test_panels_have_places_and_the_labels_that_they_share():
    def draw(panels):
        for axes in panels.flat:
            axes.plot([1, 2], [1, 2], color="#0072B2")
        panels[0, 0].set(title="left", ylabel="KL")
        panels[1, 0].set(xlabel="depth", ylabel="loss")
        panels[1, 1].set(xlabel="width")

    made = chart(draw, nrows=2, ncols=2)
    first, second, third, fourth = (each["at"] for each in made["panels"])
    assert first[0] == third[0] == 0 and second[0] == fourth[0] >= first[1]
    assert second[0] + second[1] == TRACKS
    assert [each[2:] for each in (first, second, third, fourth)] == [[0, 1], [0, 1], [1, 1], [1, 1]]
    assert [each["x"]["label"] for each in made["panels"]] == ["depth", "width", "depth", "width"]
    assert [each["y"]["label"] for each in made["panels"]] == ["KL", "KL", "loss", "loss"]
    # Another x axis is another subject: the title above is not that of the panel below.
    assert not any("under" in each for each in made["panels"])
    made = chart(draw, nrows=2, ncols=2, sharex=True)
    assert [each.get("under") for each in made["panels"]] == [None, None, "left", None]


def test_a_label_of_another_axis_is_not_taken():
    def draw(panels):
        panels[0].plot([1, 2], [1, 2], color="#0072B2")
        panels[1].plot([1, 2], [1, 200], color="#0072B2")
        panels[0].set_ylabel("KL")

    made = chart(draw, ncols=2)
    assert [each["y"]["label"] for each in made["panels"]] == ["KL", ""]


def test_panels_take_tracks_as_they_take_width_in_every_row_of_its_own():
    figure = Figure(figsize=(6, 4), layout="constrained")
    upper, lower = figure.subfigures(2, 1)
    for axes in (*upper.subplots(1, 2, width_ratios=(3, 1)), *lower.subplots(1, 3)):
        axes.plot([1, 2], [1, 2])
    figure.draw_without_rendering()
    wide, narrow, *three = (each["at"] for each in chart_of(figure, [])["panels"])
    assert wide[1] > 2 * narrow[1] and narrow[0] + narrow[1] == TRACKS
    assert max(each[1] for each in three) - min(each[1] for each in three) < TRACKS / 15
    assert all(one[0] + one[1] <= two[0] for one, two in itertools.pairwise(three))


def test_percentages_are_told_as_the_ticks_tell_them():
    def draw(axes):
        axes.plot([0.0, 1.0], [0.25, 0.5], color="#0072B2")
        percent_axis(axes.yaxis)

    (panel,) = chart(draw)["panels"]
    assert panel["y"]["percent"] is True and "percent" not in panel["x"]


def test_a_panel_that_takes_two_rows_says_so():
    figure = Figure(figsize=(4, 3), layout="constrained")
    grid = figure.add_gridspec(2, 2)
    for place in (grid[:, 0], grid[0, 1], grid[1, 1]):
        figure.add_subplot(place).plot([1, 2], [1, 2])
    figure.draw_without_rendering()
    long, above, below = (each["at"] for each in chart_of(figure, [])["panels"])
    assert [long[2:], above[2:], below[2:]] == [[0, 2], [0, 1], [1, 1]]
    assert long[0] == 0 and above[0] == below[0] >= long[1]


def test_lines_of_panels_below_headings_have_their_place_in_the_whole_figure():
    figure = Figure(figsize=(4, 4), layout="constrained")
    for part in figure.subfigures(2, 1):
        part.suptitle("a heading")
        for axes in part.subplots(1, 2):
            axes.plot([1, 2], [1, 2])
    figure.draw_without_rendering()
    places = [each["at"][2:] for each in chart_of(figure, [])["panels"]]
    assert places == [[0, 1], [0, 1], [1, 1], [1, 1]]


def test_curves_that_are_named_beside_their_panel_have_their_names_in_its_key():
    figure = Figure(figsize=(4, 3), layout="constrained")
    axes = figure.subplots()
    for look, height in zip(LOOKS.values(), (1.0, 2.0), strict=True):
        axes.plot([1, 2], [1, height], marker=look.marker, label=look.label, **look.line)
    label_ends(axes, list(LOOKS.values()), [(2.0, 1.0), (2.0, 2.0)])
    figure.draw_without_rendering()
    (panel,) = chart_of(figure, [])["panels"]
    assert [entry["label"] for entry in panel["key"]] == ["one σ^{2}", "two"]
    assert [by_name(panel, name)[0]["y"] for name in LOOKS] == [[1, 1], [1, 2]]
    assert "texts" not in panel


def test_printed_numbers_have_the_name_of_their_own_entry():
    data = frame([{"series": name, "x": 1.0, "value": 2.0} for name in LOOKS])
    filled = Look("three", "#009E73", "D", "-")

    def draw(axes):
        axes.plot([1, 2], [1, 2], marker=filled.marker, **filled.line)
        draw_printed(axes, data, "x", LOOKS)
        axes.legend(handles=[handle(filled), printed_handle()])

    (panel,) = chart(draw)["panels"]
    assert [each["key"] for each in panel["series"]] == [[0], [1], [1]]


def test_rules_spans_texts_and_pictures_are_kept_apart_from_series():
    def draw(axes):
        axes.axhline(1, color="black", linestyle="--")
        axes.axvline(2, color="black")
        axes.axvspan(0, 1, color="0.9")
        axes.text(0.5, 0.25, "in a corner", transform=axes.transAxes)
        axes.text(2, 3, "at a point")
        axes.imshow(np.eye(3), cmap="gray")

    (panel,) = chart(draw)["panels"]
    assert "series" not in panel
    assert [next(iter(rule)) for rule in panel["rules"]] == ["y", "x"]
    assert panel["spans"] == [{"x": [0, 1], "color": "#e6e6e6"}]
    assert [text.get("part") or text["at"] for text in panel["texts"]] == [[0.5, 0.25], [2, 3]]
    assert len(panel["pictures"]) == 1


def test_a_horizontal_bar_through_a_point_is_its_interval():
    def draw(axes):
        axes.errorbar([1.0], [0.0], xerr=[[0.5], [2.0]], fmt="o", color="#0072B2")

    (panel,) = chart(draw)["panels"]
    (point,) = panel["series"]
    assert (point["left"], point["right"]) == ([0.5], [3])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"$\sigma^2$ = 0.02", "σ^{2} = 0.02"),
        (r"$\mathdefault{10^{-3}}$", "10^{−3}"),
        (r"largest $R_{\alpha}$ / n", "largest R_{α} / n"),
        (r"$1.5 \times 10^{-5}$", "1.5 × 10^{−5}"),
        (r"$\varepsilon \leq 8$", "ε ≤ 8"),
        (r"$\mathbb{E}\,\|v_0\|^2$", "E ‖v_{0}‖^{2}"),
        (r"$\frac{a}{b}$ of $e^{x^2}$", "a/b of e^{x²}"),
        ("a - b, 50%", "a - b, 50%"),
    ],
)
def test_formulas_become_unicode(text, shown):
    assert words(text) == shown


@given(
    st.floats(1e-6, 1e6),
    st.floats(1.5, 1e8),
    st.booleans(),
)
def test_ticks_lie_inside_and_are_few(low, factor, log):
    high = low * factor
    ticks = ticks_between(low, high, log)
    assert len(ticks) <= 12
    assert all(low <= value <= high * (1 + 1e-9) for value, _ in ticks)
    assert [value for value, _ in ticks] == sorted(value for value, _ in ticks)
    assert log or ticks
