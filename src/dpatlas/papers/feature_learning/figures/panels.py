"""Panels of feature_learning's figures: along n by link, along p, d and epsilon, and on ladders."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

from dpatlas.errors import InputError
from dpatlas.papers.feature_learning.figures.rows import AXES, Record
from dpatlas.show.draw import draw_points
from dpatlas.show.look import DOUBLE_COLUMN, Look
from dpatlas.show.panels import label_decades, label_ticks
from dpatlas.show.rows import some

Panels = list[tuple[Axes, Record]]

IN_A_LINE = 3
LINE_HEIGHT, AROUND_LINES = 2.15, 0.45
LABELS = {
    "n": "records of a data set $n$",
    "p": "neurons $p$",
    "d": "inputs $d$",
    "epsilon": r"privacy $\varepsilon$",
    "ladder": "inputs $d$, with $n$ and $p$",
}
SYMBOLS = {"n": "$n$", "p": "$p$", "d": "$d$", "epsilon": r"$\varepsilon$"}
# Points that a digit of a tick's label takes, and the room between labels.
DIGIT, BETWEEN = 4.5, 3.0
# Limits follow intervals of few runs only so far beyond the values.
MOST_ROOM = 1.4
LEAST_FILLED = 1.2
# Ends whose ratio is below this get evenly spaced labels.
FEW = 3
EDGE = 0.06
MARGIN = 0.08


def layout(records: Sequence[Record]) -> list[list[Record]]:
    """The records of every line of panels: along n by link, along the other axes, and on ladders.

    Raises InputError where there is none along any axis.
    """
    by_axis: dict[str, list[Record]] = {axis: [] for axis in AXES}
    for record in some(records, "simulation"):
        by_axis.get(record.spec.axis, []).append(record)
    links, ladders = by_axis.pop("n"), by_axis.pop("ladder")
    others = [record for along in by_axis.values() for record in along]
    lines = [
        part[first : first + IN_A_LINE]
        for part in (links, others, ladders)
        for first in range(0, len(part), IN_A_LINE)
    ]
    if not lines:
        raise InputError("--records", "no simulation along " + ", ".join(AXES), "at least one")
    return lines


def panels_of(lines: Sequence[Sequence[Record]]) -> tuple[Figure, list[Panels]]:
    """A figure with a panel for every record, by line."""
    figure = Figure(figsize=(DOUBLE_COLUMN, LINE_HEIGHT * len(lines) + AROUND_LINES))
    grid = figure.subplots(len(lines), max(map(len, lines)), squeeze=False)
    panels = []
    for line, records in zip(grid, lines, strict=True):
        for axes in line[len(records) :]:
            axes.remove()
        panels.append(list(zip(line, records, strict=False)))
    return figure, panels


def share_y(line: Panels) -> None:
    """One y axis for a line of panels, labelled at its left."""
    (first, _), *others = line
    for axes, _ in others:
        axes.sharey(first)
        axes.tick_params(axis="y", which="both", labelleft=False)


def draw_series(
    axes: Axes,
    record: Record,
    data: pd.DataFrame,
    aside: Mapping[str, Look],
    centred: Mapping[str, Look] | None = None,
) -> None:
    """All series with a look against the axis of the record; those `aside` stand side by side."""
    axis = record.spec.along
    axes.set(xscale="log", xlabel=LABELS[record.spec.axis], title=title(record))
    axes.margins(x=MARGIN)
    if data.empty:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no points", ha="center", transform=axes.transAxes)
        return
    for looks, apart in ((centred or {}, False), (aside, True)):
        if data[axis].nunique() == 1:
            # A line through one point would not be seen.
            looks = {name: replace(look, marker=look.marker or "_") for name, look in looks.items()}
        draw_points(axes, data, axis, looks, apart=apart)


def label_x(figure: Figure, panels: Panels) -> None:
    """Label the axes at those values of their records whose labels do not run into each other."""
    # Only a laid out figure knows the widths of its panels.
    figure.draw_without_rendering()
    for axes, record in panels:
        axis, free, labelled = record.spec.along, math.inf, []
        for value in sorted({getattr(row, axis) for row in record.metrics.rows}, reverse=True):
            position = axes.transData.transform((value, 1.0))[0] * 72 / figure.dpi
            half = DIGIT * len(f"{value:g}") / 2
            if position + half <= free:
                labelled.append(value)
                free = position - half - BETWEEN
        if labelled:
            label_ticks(axes, labelled)
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def limit_y(axes: Axes, data: pd.DataFrame, above: float = 0.0) -> None:
    """A log y axis that holds all values, and their intervals where these are short.

    above: what to leave empty there, as a share of what is filled.
    """
    if data.empty:
        return
    ends = data[["value", "low", "high"]]
    low = max(data.value.min() / MOST_ROOM, ends.min(axis=None))
    high = min(data.value.max() * MOST_ROOM, ends.max(axis=None))
    filled = max(high / low, LEAST_FILLED)
    low, high = low / filled**EDGE, high * filled ** (above + EDGE)
    axes.set_ylim(low, high)
    axes.yaxis.set_minor_formatter(NullFormatter())
    if high < FEW * low:
        # So short an axis has next to none of the numbers of `label_decades`.
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        label_decades(axes.yaxis)


def title(record: Record) -> str:
    """Name of a link, with its Hermite expansion along n, and the axis elsewhere."""
    name, facts = record.spec.link, record.metrics.link
    if record.spec.axis == "ladder":
        return f"{name}, {ladder_powers(record)}"
    if record.spec.axis != "n":
        return f"{name}, against {SYMBOLS[record.spec.axis]}"
    exponent = facts.information_exponent
    return f"{name}, information exponent {exponent}\n$s$ = {expansion(facts.hermite)}"


def ladder_powers(record: Record) -> str:
    """n and p as powers of d, to two digits, by the largest condition of a ladder."""
    last = max(record.spec.points, key=lambda point: point.d)
    powers = {name: math.log(getattr(last, name)) / math.log(last.d) for name in "np"}
    shown = {name: f"{power:.2g}" for name, power in powers.items()}
    return ", ".join(
        f"${name} = d$" if power == "1" else f"${name} = d^{{{power}}}$"
        for name, power in shown.items()
    )


def expansion(hermite: Sequence[float]) -> str:
    """A sum of Hermite polynomials; coefficients to three digits."""
    text = ""
    for order, value in enumerate(hermite):
        if abs(value) > 1e-9:
            sign = " + " if text else ""
            if value < 0:
                sign = " - " if text else "-"
            text += rf"{sign}{abs(value):.3g}\,\mathrm{{He}}_{{{order}}}"
    return f"${text}$"
