"""Series of rows drawn into a panel, the same for the figures of all papers.

A row is a dict with `value`, its interval `low` to `high`, `runs_used` and `runs_diverged`, and the
columns that the figure varies; a missing value is absent or None.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    LogLocator,
    NullLocator,
    ScalarFormatter,
    StrMethodFormatter,
)
from matplotlib.transforms import ScaledTranslation

from dpatlas.show.look import BAND_ALPHA, NOTE_SIZE, Look
from dpatlas.show.output import Row

BETWEEN_SERIES = 2.5
EDGE = 0.97


def select(rows: Iterable[Row], **keys: Any) -> list[Row]:
    """The rows whose keys have the given values."""
    return [row for row in rows if all(row.get(name) == value for name, value in keys.items())]


def columns(rows: Iterable[Row], *names: str) -> tuple[np.ndarray, ...]:
    """Columns of `rows` as float arrays of shape (rows,); missing is nan."""
    rows = list(rows)
    return tuple(
        np.array([np.nan if row.get(name) is None else row[name] for row in rows], float)
        for name in names
    )


def draw_points(axes: Axes, look: Look, x: str, rows: list[Row], shift: float = 0.0) -> None:
    """A line through the values of `rows` against the column `x`, with their intervals.

    Open markers where runs diverged, crosses at the upper edge where all did. `shift`, in points,
    moves the drawing sideways so that intervals of several series do not cover each other. Set the
    axes' scales before.
    """
    at, value, used, diverged = columns(rows, x, "value", "runs_used", "runs_diverged")
    # What is drawn aside does not stretch the axes by itself.
    known = [row for row in rows if row.get("value") is not None]
    for column in columns(known, "value", "low", "high"):
        axes.update_datalim(np.column_stack([columns(known, x)[0], column]))
    axes.update_datalim(np.column_stack([at, np.ones_like(at)]), updatey=False)
    axes.autoscale_view()
    aside = ScaledTranslation(shift / 72, 0, axes.figure.dpi_scale_trans)
    line: dict[str, Any] = {"transform": axes.transData + aside, "color": look.color}
    axes.plot(at, value, marker=look.marker, linestyle=look.linestyle, **line)
    draw_bars(axes, x, rows, **line)
    fewer = (used > 0) & (diverged > 0)
    if fewer.any():
        axes.plot(at[fewer], value[fewer], look.marker, mfc="white", zorder=3, **line)
    if (used == 0).any():
        edge = axes.get_xaxis_transform() + aside
        height = np.full((used == 0).sum(), EDGE)
        axes.plot(at[used == 0], height, "X", color=look.color, transform=edge, zorder=3)


def draw_bars(axes: Axes, x: str, rows: list[Row], **look: Any) -> None:
    """Intervals as bars with caps; unlike matplotlib's error bars they need not hold the value."""
    at, low, high = columns([row for row in rows if row.get("low") is not None], x, "low", "high")
    axes.vlines(at, low, high, linewidth=0.9, **look)
    for end in (low, high):
        axes.plot(at, end, "_", markersize=3.5, markeredgewidth=0.9, **look)


def draw_band(axes: Axes, x: str, rows: list[Row], color: str) -> None:
    """The interval of every row as one band."""
    at, low, high = columns(rows, x, "low", "high")
    axes.fill_between(at, low, high, color=color, alpha=BAND_ALPHA, linewidth=0)


def shifts(count: int) -> list[float]:
    """Sideways shifts, in points, of `count` series around their common place."""
    return [BETWEEN_SERIES * (index - (count - 1) / 2) for index in range(count)]


def legend(figure: Figure, handles: list[Line2D], columns: int | None = None) -> None:
    """One legend above all panels."""
    figure.legend(handles=handles, loc="outside upper center", ncols=columns or len(handles))


def label_ticks(axes: Axes, values: Iterable[float]) -> None:
    """Label an x axis at exactly these values, as plain numbers."""
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(values))))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


def label_decades(axis: Axis) -> None:
    """Label a log axis of less than two decades at 1, 2 and 5 times the powers of ten."""
    low, high = axis.get_view_interval()
    if high < 100 * low and low > 1e-4 and high < 1e5:
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(StrMethodFormatter("{x:g}"))


def write_in(axes: Axes, text: str, right: bool = False, low: bool = False) -> None:
    """A remark in a corner of a panel."""
    x, side = (0.98, "right") if right else (0.03, "left")
    y, edge = (0.03, "bottom") if low else (0.98, "top")
    axes.text(x, y, text, transform=axes.transAxes, ha=side, va=edge, fontsize=NOTE_SIZE)


def number(value: float) -> str:
    """Two or three digits; small and large numbers as powers of ten."""
    mantissa, mark, exponent = f"{value:.3g}".partition("e")
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if mark else mantissa
