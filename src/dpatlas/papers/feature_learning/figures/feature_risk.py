"""Figure feature_risk: the risk of learned and of random features, and the laws that it follows."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

from matplotlib.axes import Axes

from dpatlas.papers.feature_learning.figures.laws import crossing_rows, rate_rows, slope_rows
from dpatlas.papers.feature_learning.figures.panels import (
    Panels,
    draw_series,
    label_x,
    layout,
    limit_y,
    panels_of,
    risk_words,
    setting_note,
    share_y,
    warning_notes,
)
from dpatlas.papers.feature_learning.figures.rows import (
    COLUMNS,
    CONFIDENCE,
    FLOOR,
    PRIVATE,
    RISKS,
    Record,
    series_rows,
)
from dpatlas.show.look import MUTED, NOTE_SIZE, THIN, Look
from dpatlas.show.output import Row, Settings, ShownFigure
from dpatlas.show.panels import columns, legend, select, shifts, write_in
from dpatlas.show.series import BLUE, handle

RATE = Look("fitted rate", BLUE, "", ":")
CROSSING = Look("meeting point", "black", "o", "none")
LAWS = {"rate": RATE, "crossing": CROSSING}
# Side by side, but for the two whose crossing is marked.
SIDES = ("direction", "random private", PRIVATE, "random private of both", "non-private")
SHOWN_SLOPES = {PRIVATE: "matrix", "direction": "direction", "random private": "random"}
# Of the height of the curves.
ROOM_FOR_SLOPES, ROOM_FOR_MEETING = 0.55, 0.12
RISK_COLUMNS = ("part", *COLUMNS, "R0", "c", "n_least", "n_most", "points")


def feature_risk(records: Sequence[Record], settings: Settings) -> ShownFigure:
    """Risk by features and read-out, with the fitted rate, and where private meets random."""
    figure, lines = panels_of(layout(records))
    panels = list(chain(*lines))
    rows: list[Row] = []
    for line in lines:
        rows += _risk_line(line)
    parts = {row["part"] for row in rows}
    looks = [kind.look for name, kind in RISKS.items() if select(rows, series=name)]
    looks += [look for part, look in LAWS.items() if part in parts]
    handles = [handle(look) for look in looks]
    if "crossing" in parts:
        handles[-1].set_markerfacecolor("white")
    # At most four fit beside each other.
    legend(figure, handles, math.ceil(len(handles) / math.ceil(len(handles) / 4)))
    label_x(figure, panels)
    shown_records = [record for _, record in panels]
    notes = [
        f"{setting_note(shown_records)}; {risk_words(shown_records)}",
        *_law_notes(rows),
        *warning_notes(shown_records),
    ]
    return ShownFigure(figure, RISK_COLUMNS, rows, notes)


def risk_rows(record: Record) -> list[Row]:
    """The points of a panel, and the laws behind them."""
    points = [
        {"part": "risk", **row}
        for name, kind in RISKS.items()
        for row in series_rows(record, name, kind)
    ]
    # A line to compare with: drawn without intervals.
    for row in select(points, series=FLOOR):
        row["low"] = row["high"] = None
    return [
        *points,
        *rate_rows(record, points),
        *crossing_rows(record, points),
        *slope_rows(record),
    ]


def _risk_line(line: Panels) -> list[Row]:
    """Draw a line of panels; the rows in it.

    Links have y axes of their own, the other panels share one.
    """
    rows: list[Row] = []
    aside = dict(zip(SIDES, shifts(len(SIDES)), strict=True))
    for axes, record in line:
        shown = risk_rows(record)
        axes.set_yscale("log")
        draw_series(axes, record, select(shown, part="risk"), RISKS, aside)
        _draw_laws(axes, record.spec.axis, shown)
        if record.spec.axis == "n":
            _limit(axes, shown)
        write_in(axes, _slopes_text(select(shown, part="slope")), low=True)
        rows += shown
    if line[0][1].spec.axis != "n":
        share_y(line)
        _limit(line[0][0], rows)
    line[0][0].set_ylabel("risk $E(f - s)^2$")
    return rows


def _limit(axes: Axes, rows: Sequence[Row]) -> None:
    """Room for what is drawn and for what is written above and below it."""
    parts = {row["part"] for row in rows}
    below = ROOM_FOR_SLOPES if "slope" in parts else 0.0
    above = ROOM_FOR_MEETING if "crossing" in parts else 0.0
    limit_y(axes, [row for row in rows if row["part"] != "slope"], below, above)


def _draw_laws(axes: Axes, axis: str, rows: Sequence[Row]) -> None:
    """The fitted rate, and a mark and a number where private features meet random ones."""
    axes.plot(*columns(select(rows, part="rate"), axis, "value"), marker=RATE.marker, **RATE.line)
    for row in select(rows, part="crossing"):
        mark: dict[str, Any] = {"mfc": "white", "markersize": 6, "zorder": 4}
        axes.plot(row[axis], row["value"], CROSSING.marker, color=CROSSING.color, **mark)
        axes.annotate(
            f"{float(f'{row[axis]:.3g}'):g}",
            (row[axis], row["value"]),
            (row[axis], 0.99),
            textcoords=axes.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=NOTE_SIZE,
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": THIN},
        )


def _law_notes(rows: Sequence[Row]) -> list[str]:
    """What slopes, meeting points and the fits of the rate are."""
    notes = []
    if select(rows, part="slope"):
        notes.append(
            "slope: of log risk in log n, by least squares in every run; mean over runs and half "
            f"its {CONFIDENCE:.0%} t interval"
        )
    if select(rows, part="crossing"):
        notes.append(
            "meeting point: where the means of private, matrix and random, non-private cross, "
            "lines drawn straight between logarithms"
        )
    fits = {
        (row["link"], row["axis"]): f"{row['link']} along {row['axis']} R0 = {row['R0']:.3g}, "
        f"c = {row['c']:.3g}"
        for row in select(rows, part="rate")
    }
    if fits:
        notes.append(
            "fitted rate: R0 + c d^(1 + eps_n)/n log(1.25/delta)/eps^2 (Theorem 1's second term, "
            "n = d^(1 + 3 eps_n)), R0 >= 0 and c >= 0 by least squares on the mean private risks: "
            + "; ".join(fits.values())
        )
    return notes


def _slopes_text(rows: Sequence[Row]) -> str:
    """Slopes of the private networks with their intervals, which are symmetric."""
    lines = []
    for name, label in SHOWN_SLOPES.items():
        for row in select(rows, series=name):
            half = "" if row["high"] is None else rf" $\pm$ {row['high'] - row['value']:.3f}"
            lines.append(f"{label} {row['value']:.3f}{half}")
    return "\n".join(["slope in $n$, private read-out", *lines]) if lines else ""
