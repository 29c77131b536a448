"""Series of lp_fft's simulated theory, as rows of a csv and drawn into a panel."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.core.statistics import Estimate
from dpatlas.records import Record
from dpatlas.show.draw import draw_curves, draw_points, frame
from dpatlas.show.look import BLUE, DOUBLE_COLUMN, GREEN, MUTED, RED, THIN, Look
from dpatlas.show.rows import CONFIDENCE, Row
from dpatlas.show.series import handle

MARKER_SIZE = 3
# Height in inches of a line of panels under its heading.
PART_HEIGHT = 2.35
Draw = Callable[[Axes, Any], list[Row]]
COLUMNS = ("panel", "series", "x", "value", "low", "high", "count", "trials")
PRINTED = Look("printed", RED, "", "--")
EXACT = Look("corrected", BLUE, "", "-")
# By kind of noise in linear networks.
NOISES = {
    "uniform": Look("uniform noise", BLUE, "o", "-"),
    "layer-wise": Look("layer-wise noise", GREEN, "s", "--"),
}


def draw_parts(
    record: Record[Any, Any], parts: Mapping[str, Sequence[Draw]]
) -> tuple[Figure, list[Row]]:
    """A figure with a line of panels under every heading, and the rows of all panels."""
    figure = Figure(figsize=(DOUBLE_COLUMN, PART_HEIGHT * len(parts)))
    rows: list[Row] = []
    framed = figure.subfigures(len(parts), 1, squeeze=False).flat
    for part, (heading, panels) in zip(framed, parts.items(), strict=True):
        part.suptitle(heading, weight="bold")
        for axes, draw in zip(part.subplots(1, len(panels)), panels, strict=True):
            rows += draw(axes, record)
    return figure, rows


def mean_rows(
    record: Record[Any, Any],
    panel: str,
    look: Look,
    at: Iterable[float],
    values: Iterable[float],
    errors: Iterable[float],
) -> list[Row]:
    """Rows of simulated means with their normal intervals."""
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
    """Rows of computed values, which have no interval."""
    return [row_of(record, panel, look, x, value) for x, value in zip(at, values, strict=True)]


def row_of(record: Record[Any, Any], panel: str, look: Look, x: Any, value: float) -> Row:
    """The row of one value of a series; x: a number, or a category."""
    return {"panel": panel, "series": look.label, "x": x, "value": value, "runs": list(record.ids)}


def draw_series(axes: Axes, rows: Sequence[Row], looks: Iterable[Look]) -> None:
    """Every series in its look: points with intervals if it has a marker, else a line."""
    data = frame(rows)
    for look in looks:
        if look.marker:
            with mpl.rc_context({"lines.markersize": MARKER_SIZE}):
                draw_points(axes, data, "x", {look.label: look}, apart=False)
        else:
            draw_curves(axes, data, "x", {look.label: look})


def legend_of(axes: Axes, looks: Iterable[Look], **options: Any) -> None:
    """A legend of series inside a panel."""
    axes.legend(handles=list(map(handle, looks)), **options)


def draw_guide(axes: Axes, height: float) -> None:
    """A thin horizontal line across a panel."""
    axes.axhline(height, color=MUTED, linewidth=THIN, zorder=1)
