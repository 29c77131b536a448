"""Series of lp_fft's simulated theory, as rows of a csv and drawn into a panel."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import BLUE, GREEN, MUTED, RED, THIN, Look
from dpatlas_workflow.show.panel import Panel, PanelGrid, Series, ShownFigure, series
from dpatlas_workflow.show.rows import CONFIDENCE, Row
from dpatlas_workflow.statistics import Estimate

MARKER_SIZE = 3
# Height in inches of a line of panels under its heading.
HEIGHT = 2.35
# A panel and its rows, which the record's ids are added to.
Made = tuple[Panel, list[Row]]
COLUMNS = ("panel", "series", "x", "value", "low", "high", "count", "trials")
PRINTED = Look("printed", RED, "", "--")
EXACT = Look("corrected", BLUE)
# A line to compare with.
GUIDE = Look("", MUTED, width=THIN)
# By kind of noise in linear networks.
NOISES = {
    "uniform": Look("uniform noise", BLUE, "o", "-"),
    "layer-wise": Look("layer-wise noise", GREEN, "s", "--"),
}


def theory_figure(
    record: Record[Any],
    lines: Mapping[str, Sequence[Made]],
    notes: list[str],
    height: float = HEIGHT,
) -> ShownFigure:
    """A line of panels of the record under every heading."""
    grids = [
        PanelGrid([[panel for panel, _ in line]], height, heading)
        for heading, line in lines.items()
    ]
    made = [row for line in lines.values() for _, of_panel in line for row in of_panel]
    rows = [{**row, "runs": list(record.ids)} for row in made]
    return ShownFigure(grids, COLUMNS, rows, notes)


def drawn(rows: Sequence[Row], looks: Iterable[Look]) -> list[Series]:
    """The series that the rows name by the labels of the looks."""
    return series(rows, "x", {look.label: replace(look, size=MARKER_SIZE) for look in looks})


def mean_rows(
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
        rows.append({**row_of(panel, look, x, value), "low": low, "high": high})
    return rows


def curve_rows(panel: str, look: Look, at: Iterable[float], values: Iterable[float]) -> list[Row]:
    """Rows of computed values, which have no interval."""
    return [row_of(panel, look, x, value) for x, value in zip(at, values, strict=True)]


def row_of(panel: str, look: Look, x: Any, value: float) -> Row:
    """The row of one value of a series; x: a number, or a category."""
    return {"panel": panel, "series": look.label, "x": x, "value": value}
