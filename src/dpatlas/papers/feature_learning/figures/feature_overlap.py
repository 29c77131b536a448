"""Figure feature_overlap: how far the neurons point along the direction that is to be learned."""

from collections.abc import Sequence
from itertools import chain

from dpatlas.papers.feature_learning.figures.panels import (
    draw_series,
    label_x,
    layout,
    panels_of,
    share_y,
)
from dpatlas.papers.feature_learning.figures.rows import (
    COLUMNS,
    CONDITION,
    OVERLAPS,
    Record,
    Series,
    condition,
    series_rows,
)
from dpatlas.papers.feature_learning.figures.words import setting_note, warning_notes
from dpatlas.show.draw import frame
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import legend
from dpatlas.show.rows import Row, Settings, span
from dpatlas.show.series import handle

# Markers at 1 are whole.
TOP = 1.03
LOOKS = {name: kind.look for name, kind in OVERLAPS.items()}
OVERLAP_COLUMNS = (*COLUMNS, "cosine", "cosine_standard_error", "sigma_W")


def feature_overlap(records: Sequence[Record], settings: Settings) -> DrawnFigure:
    """Mean |cosine| of the neurons with mu, by how the first layer was made."""
    figure, lines = panels_of(layout(records))
    panels = list(chain(*lines))
    rows: list[Row] = []
    for axes, record in panels:
        shown = [row for name in OVERLAPS for row in overlap_rows(record, name)]
        draw_series(axes, record, frame(shown), LOOKS)
        rows += shown
    for line in lines:
        share_y(line)
        line[0][0].set(ylim=(0, TOP), ylabel=r"mean $|\cos(w_j, \mu)|$")
    legend(figure, [handle(look) for look in LOOKS.values()])
    label_x(figure, panels)
    shown_records = [record for _, record in panels]
    notes = [setting_note(shown_records), *_printed_notes(rows), *warning_notes(shown_records)]
    return DrawnFigure(figure, OVERLAP_COLUMNS, rows, notes)


def overlap_rows(record: Record, name: str) -> list[Row]:
    """Overlaps of one kind of features, each with its mean cosine and, for printed, sigma_W."""
    kind = OVERLAPS[name]
    rows = series_rows(record, name, kind)
    cosines = series_rows(record, name, Series(kind.features, "cosine", kind.look))
    for row, cosine in zip(rows, cosines, strict=True):
        row["cosine"], row["cosine_standard_error"] = cosine["value"], cosine["standard_error"]
    if name == "printed":
        noise = {
            tuple(condition(record, point).values()): point.printed_noise
            for point in record.metrics.conditions
        }
        for row in rows:
            row["sigma_W"] = noise[tuple(row[key] for key in CONDITION)]
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
