"""Points, curves and shares of lp_fft's simulated theory, as rows and as drawn series."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from dpatlas.core.statistics import Estimate
from dpatlas.records import Record
from dpatlas.show.look import MUTED, THIN, Look
from dpatlas.show.output import Row
from dpatlas.show.panels import columns, draw_bars, label_decades, select
from dpatlas.show.series import BLUE, RED

CONFIDENCE = 0.95
COLUMNS = ("panel", "series", "x", "value", "low", "high", "count", "trials")
PRINTED = Look("printed", RED, "", "--")
EXACT = Look("corrected", BLUE, "", "-")
# Of linear nets.
NOISES = {
    "uniform": Look("uniform noise", BLUE, "o", "-"),
    "layer-wise": Look("layer-wise noise", RED, "s", "--"),
}


def mean_rows(
    record: Record[Any, Any],
    panel: str,
    look: Look,
    at: Iterable[float],
    values: Iterable[float],
    errors: Iterable[float],
) -> list[Row]:
    """Means with their normal intervals."""
    rows = []
    for x, value, error in zip(at, values, errors, strict=True):
        low, high = Estimate(value, error, math.inf, 2).interval(CONFIDENCE)
        rows.append({**row_of(record, panel, look, x, value), "low": low, "high": high})
    return rows


def curve_rows(
    record: Record[Any, Any],
    panel: str,
    look: Look,
    at: Iterable[float],
    values: Iterable[float],
) -> list[Row]:
    """Computed values, which have no interval."""
    return [row_of(record, panel, look, x, value) for x, value in zip(at, values, strict=True)]


def row_of(record: Record[Any, Any], panel: str, look: Look, x: Any, value: float) -> Row:
    """A value of a series at x, of any type that a panel's axis takes."""
    return {"panel": panel, "series": look.label, "x": x, "value": value, "runs": [record.id]}


def draw_series(axes: Axes, rows: Sequence[Row], looks: Iterable[Look]) -> None:
    """Every series in its look, with its intervals if it has any."""
    for look in looks:
        shown = select(rows, series=look.label)
        marker = {"marker": look.marker, "markersize": 3} if look.marker else {}
        style = {**look.line, "linestyle": look.linestyle or "none", **marker}
        axes.plot(*columns(shown, "x", "value"), label=look.label, **style)
        draw_bars(axes, "x", shown, color=look.color)


def draw_guide(axes: Axes, height: float) -> None:
    """A thin line across a panel."""
    axes.axhline(height, color=MUTED, linewidth=THIN, zorder=1)


def label_few(axes: Axes) -> None:
    """Labels of a log y axis that do not run into each other."""
    axes.yaxis.set_minor_formatter(NullFormatter())
    label_decades(axes.yaxis)
