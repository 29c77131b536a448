"""Figure feature_overlap: how far the neurons point along the direction that is to be learned."""

from collections.abc import Sequence

from dpatlas_workflow.papers.feature_learning.figures.panels import grid, layout, panel
from dpatlas_workflow.papers.feature_learning.figures.rows import (
    COLUMNS,
    CONDITION,
    OVERLAPS,
    FeatureSeries,
    Record,
    series_rows,
)
from dpatlas_workflow.papers.feature_learning.figures.words import setting_note, warning_notes
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.panel import Axis, Panel, ShownFigure, points
from dpatlas_workflow.show.rows import Row, Settings, span

# Markers at 1 are whole.
OVERLAP = Axis(r"mean $|\cos(w_j, \mu)|$", ends=(0, 1.03))
LOOKS = {name: kind.look for name, kind in OVERLAPS.items()}
OVERLAP_COLUMNS = (*COLUMNS, "cosine", "cosine_standard_error", "sigma_W")


def feature_overlap(records: Sequence[Record], settings: Settings) -> ShownFigure:
    """Mean |cosine| of the neurons with mu, by how the first layer was made."""
    rows: list[Row] = []
    panels: list[list[Panel]] = []
    lines = layout(records)
    for line in lines:
        panels.append([])
        for record in line:
            shown = [row for name in OVERLAPS for row in overlap_rows(record, name)]
            panels[-1].append(panel(record, OVERLAP, points(shown, record.spec.along, LOOKS)))
            rows += shown
    drawn = [record for line in lines for record in line]
    notes = [setting_note(drawn), *_printed_notes(rows), *warning_notes(drawn)]
    return ShownFigure([grid(panels)], OVERLAP_COLUMNS, rows, notes)


def overlap_rows(record: Record, name: str) -> list[Row]:
    """Overlaps of one kind of features, each with its mean cosine and, for printed, sigma_W."""
    kind = OVERLAPS[name]
    rows = series_rows(record, name, kind)
    cosines = series_rows(record, name, FeatureSeries(kind.features, "cosine", kind.look))
    for row, cosine in zip(rows, cosines, strict=True):
        row["cosine"], row["cosine_standard_error"] = cosine["value"], cosine["standard_error"]
    if name == "printed":
        conditions = columns([record], "conditions").groupby(list(CONDITION)).printed_noise
        for row in rows:
            row["sigma_W"] = conditions.get_group(tuple(row[key] for key in CONDITION)).iloc[0]
    return rows


def _printed_notes(rows: Sequence[Row]) -> list[str]:
    """What sigma_W is and what it leaves of the direction."""
    shown = [row for row in rows if row["series"] == "printed"]
    if not shown:
        return []
    errors = [row["cosine_standard_error"] for row in shown]
    known = [error for error in errors if error is not None]
    return [
        "printed: the step of the summed gradient, normalised, and noise sigma_W N(0, 1) on every "
        "entry, sigma_W = sqrt(d^(1 + eps_B)/n) log(d)^(q + 3) with eps_B = 0, here "
        f"{span((row['sigma_W'] for row in shown), 4)}; "
        f"mean cosine of its neurons with mu {span((row['cosine'] for row in shown), 2)}"
        + (f", standard error at most {max(known):.2g}" if known else "")
    ]
