"""Points, curves and shares of lp_fft's simulated theory, as rows and as drawn series."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from dpatlas.core.statistics import Estimate
from dpatlas.show.look import MUTED, THIN, Look
from dpatlas.show.output import Row
from dpatlas.show.panels import columns, draw_bars, label_decades, select
from dpatlas.show.series import BLUE, RED

Record = Mapping[str, Any]

CONFIDENCE = 0.95
COLUMNS = ("panel", "series", "x", "value", "low", "high", "count", "trials")
PRINTED = Look("printed", RED, "", "--")
EXACT = Look("corrected", BLUE, "", "-")


def mean_rows(
    record: Record,
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
        rows.append({**_row(record, panel, look, x, value), "low": low, "high": high})
    return rows


def curve_rows(
    record: Record, panel: str, look: Look, at: Iterable[float], values: Iterable[float]
) -> list[Row]:
    """Computed values, which have no interval."""
    return [_row(record, panel, look, x, value) for x, value in zip(at, values, strict=True)]


def share_rows(
    record: Record, panel: str, look: Look, x: str, found: Iterable[Record]
) -> list[Row]:
    """Proportions with the intervals of the record."""
    names = ("low", "high", "count", "trials")
    return [
        {**_row(record, panel, look, row[x], row["share"]), **{name: row[name] for name in names}}
        for row in found
    ]


def column_rows(
    record: Record, panel: str, look: Look, found: Sequence[Record], x: str, name: str
) -> list[Row]:
    """A column of the record with its column of errors."""
    at, values, errors = ([row[key] for row in found] for key in (x, name, f"{name}_error"))
    return mean_rows(record, panel, look, at, values, errors)


def _row(record: Record, panel: str, look: Look, x: Any, value: float) -> Row:
    return {"panel": panel, "series": look.label, "x": x, "value": value, "runs": [record["id"]]}


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
