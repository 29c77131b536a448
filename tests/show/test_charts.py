"""What the chart of a figure has: the numbers of its description, and nothing else."""

import base64
import io
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from dpatlas_workflow.show.charts import TRACKS, chart_of, ticks_between
from dpatlas_workflow.show.look import Look
from dpatlas_workflow.show.mathtext import in_unicode, plain
from dpatlas_workflow.show.panel import (
    Axis,
    Contours,
    Legend,
    Panel,
    PanelGrid,
    Series,
    ShownFigure,
    Span,
    Words,
    accuracy,
    points,
    printed,
    series,
)

LOOKS = {"a": Look("one $\\sigma^2$", "#0072B2", "o", "-"), "b": Look("two", "#D55E00", "s", "--")}
VALUES = [("a", 2, 1.5), ("a", 4, 2.5), ("a", 8, 20.0), ("b", 2, 3.0), ("b", 8, 4.0)]
# Two series at depths 2, 4 and 8 with intervals; of one point every run diverged, of one a part.
ROWS = [
    {"series": name, "x": x, "value": y, "low": y / 2, "high": 2 * y, "runs_used": 3}
    for name, x, y in VALUES
]
ROWS[-1]["runs_diverged"] = 1
ROWS.append({"series": "b", "x": 4, "runs_used": 0, "runs_diverged": 3})


def chart(*lines, legend=None, notes=("ten runs",), **grid):
    made = chart_of(ShownFigure([PanelGrid(lines, 3.0, **grid)], (), [], [], legend), notes)
    return json.loads(json.dumps(made, allow_nan=False))


def one(panel, **options):
    return chart([panel], **options)["panels"][0]


def test_points_come_with_their_intervals_and_names():
    made = chart([Panel(series=points(ROWS, "x", LOOKS))])
    (panel,) = made["panels"]
    assert [entry["label"] for entry in made["key"]] == ["one σ^{2}", "two"]
    assert made["notes"] == ["ten runs"]
    first, second, opened, lost = panel["series"]
    assert first["y"] == [1.5, 2.5, 20] and first["key"] == [0]
    assert first["low"] == [0.75, 1.25, 10] and first["high"] == [3, 5, 40]
    assert second["y"] == [3, None, 4] and second["key"] == [1]
    # At 2, 4 and 8, the ink of the first on the left.
    assert first["x"] == [2, 4, 8] and second["x"] == [2, 4, 8]
    assert first["aside"] == -second["aside"] < 0
    assert (opened["x"], opened["y"], opened["open"]) == ([8], [4], True)
    # Where every run diverged a cross stands at the edge, and has no value.
    assert (lost["x"], lost["marker"], lost["edge"]) == ([4], "X", True)
    assert all(each["aside"] == second["aside"] for each in (opened, lost))


def test_intervals_are_those_that_there_are():
    rows = [{"series": "a", "x": 1, "value": 2.0, "low": None, "high": None}]
    (single,) = one(Panel(series=series(rows, "x", LOOKS)))["series"]
    assert single["y"] == [2] and "low" not in single
    band, *_ = one(Panel(series=series(ROWS, "x", LOOKS, band=True)))["series"]
    assert band["band"] and band["low"] == [0.75, 1.25, 10] and band["high"] == [3, 5, 40]
    along = Series(LOOKS["a"], [1.0], [0.0], left=[0.5], right=[3.0])
    (point,) = one(Panel(series=[along]))["series"]
    assert (point["left"], point["right"]) == ([0.5], [3])


def test_a_series_has_the_places_of_all_entries_that_speak_of_it():
    reading = Look("largest", "0.6")
    shown = series(ROWS, "x", LOOKS, told=("largest",))
    made = chart([Panel(series=shown)], legend=[*LOOKS.values(), reading])
    assert [each["key"] for each in made["panels"][0]["series"][:2]] == [[0, 2], [1, 2]]
    own = Panel(series=shown, legend=Legend(looks=[reading, LOOKS["b"]], heading="of"))
    made = chart([own, Panel(series=printed(ROWS[:4], "x", LOOKS))])
    first, second = made["panels"]
    assert first["key"][0] == {"label": "of"}
    assert [each["key"] for each in first["series"][:2]] == [[1], [1, 2]]
    assert [entry["label"] for entry in made["key"]] == ["printed in the paper"]
    assert [each["key"] for each in second["series"]] == [[0], [0]]
    assert all(each["open"] for each in second["series"])


def test_curves_that_are_named_at_their_ends_have_their_names_in_the_key_of_their_panel():
    looks = {"a": Look("in two\nlines", "black")}
    panel = one(Panel(series=series(ROWS, "x", looks), legend="ends"))
    assert [entry["label"] for entry in panel["key"]] == ["in two lines"]
    assert panel["series"][0]["key"] == [0] and "texts" not in panel


def test_a_marker_may_be_open_or_filled_by_half():
    for fill, opened in (("none", True), ("bottom", "bottom"), ("full", False)):
        look = Look("name", "black", "o", "", fill=fill)
        made = chart([Panel(series=[Series(look, [1], [1])])])
        assert made["panels"][0]["series"][0]["open"] == made["key"][0]["open"] == opened


def test_the_other_scale_is_offered_where_numbers_are_positive_and_far_apart():
    def other(low, high, log):
        shown = [Series(LOOKS["a"], [1, 2], [low, high])]
        return one(Panel("", Axis(), Axis(log=log), shown))["y"].get("other")

    assert other(1, 100, False)["log"] is True
    assert other(1, 100, True)["log"] is False
    assert other(1, 100, True)["ends"][0] == 0
    assert other(0.97, 0.98, False) is other(-1, 100, False) is None


def test_panels_have_places_labels_and_the_title_above():
    x, kl, loss = Axis("depth"), Axis("KL"), Axis("loss")
    left, right = (Panel(title, x, kl) for title in ("left", ""))
    made = chart([left, right], [Panel("", x, loss), Panel("", Axis("width"), loss)])
    half = TRACKS // 2
    places = [[column * half, half, row, 1] for row in (0, 1) for column in (0, 1)]
    assert [each["at"] for each in made["panels"]] == places
    assert [each["x"]["label"] for each in made["panels"]] == ["depth"] * 3 + ["width"]
    assert [each["y"]["label"] for each in made["panels"]] == ["KL", "KL", "loss", "loss"]
    assert [each["y"].get("quiet") for each in made["panels"]] == [None, True, None, True]
    # Another x axis is another subject: the title above is not that of the panel below.
    assert [each.get("under") for each in made["panels"]] == [None, None, "left", None]


def test_panels_take_tracks_as_they_take_width_in_every_grid_of_its_own():
    grids = [
        PanelGrid([[Panel(), Panel()]], 2.0, "a heading", widths=(3, 1)),
        PanelGrid([[Panel(lines=2), Panel(), Panel()], [None, Panel(), None]], 4.0),
    ]
    made = chart_of(ShownFigure(grids, (), [], []), [])
    (wide, narrow, *three, below) = (each["at"] for each in made["panels"])
    assert made["headings"] == ["a heading"]
    assert wide[1] == 3 * narrow[1] and narrow[0] + narrow[1] == TRACKS
    assert {each[1] for each in three} == {TRACKS // 3}
    assert all(one[0] + one[1] <= two[0] for one, two in itertools.pairwise(three))
    rows = [each[2:] for each in (wide, narrow, *three, below)]
    assert rows == [[0, 1], [0, 1], [1, 2], [1, 1], [1, 1], [2, 1]]


def test_percentages_and_words_are_told_as_the_ticks_tell_them():
    shown = [Series(LOOKS["a"], [0, 1], [0.25, 0.5])]
    panel = one(Panel("", Axis(ticks={0: "$\\alpha$", 1: "b"}), accuracy(), shown))
    assert panel["y"]["percent"] is True and "percent" not in panel["x"]
    assert panel["x"]["ticks"] == [[0, "α"], [1, "b"]]
    assert [0.3, "30"] in panel["y"]["ticks"]
    numbers = one(Panel("", Axis(ticks=[-2, 4000, 16000, 1e6]), accuracy()))["x"]["ticks"]
    assert [text for _, text in numbers] == ["−2", "4000", "16000", "10^{6}"]


def test_rules_spans_areas_words_and_pictures_are_kept_apart_from_series():
    image = np.array([[0.0, 0.5], [1.0, math.nan]])
    panel = one(
        Panel(
            across=[1.0],
            upright=[2.0],
            spans=[Span("0.9", (0, 1)), Span("0.9", (0, 1), (2, 3))],
            contours=Contours([0, 1], [0, 1], np.array([[0, 1], [1, 2]]), [0.5, 1.5]),
            words=[Words("in a corner"), Words("$x^2$", (2, 3), "red", ("left", "bottom"))],
            image=image,
        )
    )
    assert "series" not in panel
    assert [next(iter(rule)) for rule in panel["rules"]] == ["y", "x"]
    band = {"x": [0, 1], "color": "#e6e6e6"}
    assert panel["spans"] == [band, band | {"y": [2, 3]}]
    assert [area["filled"] for area in panel["areas"]] == [True, True, False, False]
    ((start, end),) = panel["areas"][2]["points"]
    assert sorted([start, end]) == [[0, 0.5], [0.5, 0]]
    assert [text["text"] for text in panel["texts"]] == ["in a corner", "x^{2}", "0.5", "1.5"]
    assert panel["texts"][1]["align"] == ["left", "bottom"]
    (picture,) = panel["pictures"]
    assert (picture["x"], picture["y"]) == ([-0.5, 1.5], [1.5, -0.5])
    drawn = imread(io.BytesIO(base64.b64decode(picture["png"])))
    assert drawn[0, 0, 0] == 1 and drawn[1, 0, 0] == 0 and drawn[1, 1, 3] == 0


@pytest.mark.parametrize(
    ("text", "shown", "letters"),
    [
        (r"$\sigma^2$ = 0.02", "σ^{2} = 0.02", "σ2 = 0.02"),
        (r"$\mathdefault{10^{-3}}$", "10^{−3}", "10−3"),
        (r"largest $R_{\alpha}$ / n", "largest R_{α} / n", "largest Rα / n"),
        (r"$1.5 \times 10^{-5}$", "1.5 × 10^{−5}", "1.5 × 10−5"),
        (r"$\varepsilon \leq 8$", "ε ≤ 8", "ε ≤ 8"),
        (r"$\log\,\mathbb{E}\,\|v_0\|^2$", "log E ‖v_{0}‖^{2}", "log E ‖v0‖2"),
        (r"$\frac{a}{b}$ of $e^{x^2}$", "a/b of e^{x²}", "a/b of ex²"),
        ("a - b,\n50%", "a - b,\n50%", "a - b,"),
    ],
)
def test_formulas_become_unicode(text, shown, letters):
    assert in_unicode(text) == shown and plain(text) == letters


@given(st.floats(1e-6, 1e6), st.floats(1.5, 1e8), st.booleans())
def test_ticks_lie_inside_and_are_few(low, factor, log):
    high = low * factor
    ticks = ticks_between(low, high, log)
    assert len(ticks) <= 12
    assert all(low <= value <= high * (1 + 1e-9) for value, _ in ticks)
    assert [value for value, _ in ticks] == sorted(value for value, _ in ticks)
    assert log or ticks
