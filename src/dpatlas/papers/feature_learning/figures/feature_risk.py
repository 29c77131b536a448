"""Figure feature_risk: the risk of learned and of random features, and the laws that it follows."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from dpatlas.papers.feature_learning.figures.laws import (
    crossing_rows,
    ladder_rows,
    rate_rows,
    slope_rows,
)
from dpatlas.papers.feature_learning.figures.panels import (
    Panels,
    draw_series,
    label_x,
    layout,
    limit_y,
    panels_of,
    share_y,
)
from dpatlas.papers.feature_learning.figures.rows import (
    COLUMNS,
    FLOOR,
    PRIVATE,
    RISKS,
    Record,
    series_rows,
)
from dpatlas.papers.feature_learning.figures.words import risk_words, setting_note, warning_notes
from dpatlas.show.draw import frame
from dpatlas.show.look import MUTED, NOTE_SIZE, THIN, Look
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import legend
from dpatlas.show.rows import CONFIDENCE, Row, Settings
from dpatlas.show.series import handle

RATE = Look("fitted rate", "black", "", "--")
THEOREM = Look("power of Theorem 1", "black", "", ":")
CROSSING = Look("meeting point", "black", "o", "none")
LOOKS = {name: kind.look for name, kind in RISKS.items()}
LAWS = {"rate": RATE, "theorem": THEOREM, "crossing": CROSSING}
# Side by side, but for the two whose crossing is marked.
SIDES = ("direction", "random private", PRIVATE, "random private of both", "non-private")
# By axis, what is varied and the networks whose slopes are told below the panels.
PRIVATE_SLOPES = {PRIVATE: "matrix", "direction": "direction", "random private": "random"}
SHOWN_SLOPES = {
    "n": ("n", PRIVATE_SLOPES),
    "p": ("p", {PRIVATE: "matrix", "direction": "direction", "non-private": "non-private"}),
    "ladder": ("d", PRIVATE_SLOPES),
}
# Of the height of the curves.
ROOM_FOR_MEETING = 0.12
RISK_COLUMNS = ("part", *COLUMNS, "R0", "c", "least", "most", "points")


def feature_risk(records: Sequence[Record], settings: Settings) -> DrawnFigure:
    """Risk by features and read-out, with the fitted rate, and where private meets random."""
    figure, lines = panels_of(layout(records))
    panels = list(chain(*lines))
    rows: list[Row] = []
    for line in lines:
        rows += _risk_line(line)
    data = frame(rows)
    shown = {*data.get("series", ()), *data.get("part", ())}
    handles = [handle(look) for name, look in (LOOKS | LAWS).items() if name in shown]
    if "crossing" in shown:
        handles[-1].set_markerfacecolor("white")
    # At most four fit beside each other.
    legend(figure, handles, math.ceil(len(handles) / math.ceil(len(handles) / 4)))
    label_x(figure, panels)
    shown_records = [record for _, record in panels]
    notes = [
        f"{setting_note(shown_records)}; {risk_words(shown_records)}",
        *_law_notes(data),
        *warning_notes(shown_records),
    ]
    return DrawnFigure(figure, RISK_COLUMNS, rows, notes)


def risk_rows(record: Record) -> list[Row]:
    """The points of a panel, and the laws behind them."""
    points = [
        {"part": "risk", **row}
        for name, kind in RISKS.items()
        for row in series_rows(record, name, kind)
    ]
    # A line to compare with: drawn without intervals.
    for row in points:
        if row["series"] == FLOOR:
            row["low"] = row["high"] = None
    return [
        *points,
        *rate_rows(record, points),
        *ladder_rows(record, points),
        *crossing_rows(record, points),
        *slope_rows(record),
    ]


def _risk_line(line: Panels) -> list[Row]:
    """Draw a line of panels, which share a y axis; the rows in it."""
    rows: list[Row] = []
    aside = {name: LOOKS[name] for name in SIDES}
    centred = {name: look for name, look in LOOKS.items() if name not in SIDES}
    for axes, record in line:
        shown = risk_rows(record)
        axes.set_yscale("log")
        data = frame(shown)
        draw_series(axes, record, data[data.part == "risk"] if shown else data, aside, centred)
        if shown:
            _draw_laws(axes, record.spec.along, data)
        rows += shown
    if rows:
        share_y(line)
        data = frame(rows)
        above = ROOM_FOR_MEETING if "crossing" in set(data.part) else 0.0
        limit_y(line[0][0], data[data.part != "slope"], above=above)
    line[0][0].set_ylabel("risk $E(f - s)^2$")
    return rows


def _draw_laws(axes: Axes, axis: str, data: pd.DataFrame) -> None:
    """The report's rates, and a mark and a number where private features meet random ones."""
    for part, look in (("rate", RATE), ("theorem", THEOREM)):
        law = data[data.part == part]
        axes.plot(law[axis], law.value, marker=look.marker, **look.line)
    for x, value in data.loc[data.part == "crossing", [axis, "value"]].itertuples(index=False):
        mark: dict[str, Any] = {"mfc": "white", "markersize": 6, "zorder": 4}
        axes.plot(x, value, CROSSING.marker, color=CROSSING.color, **mark)
        axes.annotate(
            f"{float(f'{x:.3g}'):g}",
            (x, value),
            (x, 0.99),
            textcoords=axes.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=NOTE_SIZE,
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": THIN},
        )


def _law_notes(data: pd.DataFrame) -> list[str]:
    """What slopes, meeting points and the fits of the rate are."""
    notes, parts = [], dict(list(data.groupby("part")))
    if "slope" in parts:
        notes.append(
            "slope: of log risk in log n, log p or log d, by least squares in every run; mean "
            f"over runs and half-width of its {CONFIDENCE:.0%} t interval: "
            f"{_slopes_text(parts['slope'])}"
        )
    if "theorem" in parts:
        notes.append(
            "power of Theorem 1: d^(-eps_p/(8 q)) with p = d^(eps_p) and the link's degree q, "
            "drawn through the first private risk"
        )
    if "crossing" in parts:
        notes.append(
            "meeting point: where the means of private, matrix and random, non-private cross, "
            "lines drawn straight between logarithms"
        )
    if "rate" in parts:
        fits = [
            f"{fit.link} along {fit.axis} R0 = {fit.R0:.3g}, c = {fit.c:.3g}"
            for fit in parts["rate"].drop_duplicates(["link", "axis"]).itertuples()
        ]
        notes.append(
            "fitted rate: R0 + c d^(1 + eps_n)/n log(1.25/delta)/eps^2 (Theorem 1's second term, "
            "n = d^(1 + 3 eps_n)), R0 >= 0 and c >= 0 by least squares on the mean private risks: "
            + "; ".join(fits)
        )
    return notes


def _slopes_text(slopes: pd.DataFrame) -> str:
    """Slopes by link and axis with their intervals, which are symmetric."""
    texts = []
    for (axis, link), of_panel in slopes.groupby(["axis", "link"], sort=False):
        varied, shown = SHOWN_SLOPES[axis]
        numbers = []
        for row in of_panel[of_panel.series.isin(list(shown))].itertuples():
            half = "" if math.isnan(row.high) else f"\xa0±\xa0{row.high - row.value:.3f}"
            numbers.append(f"{shown[row.series]} {row.value:.3f}{half}")
        texts.append(f"{link} in {varied}: {', '.join(numbers)}")
    return "; ".join(texts)
