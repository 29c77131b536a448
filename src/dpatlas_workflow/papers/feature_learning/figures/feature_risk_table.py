"""Table of feature_learning: overlaps and risks of every condition, and slopes of risk in n."""

from collections.abc import Sequence
from typing import Any

from dpatlas_workflow.papers.feature_learning.figures.laws import SLOPES, slope_rows, slope_text
from dpatlas_workflow.papers.feature_learning.figures.rows import (
    AXES,
    CONDITION,
    FLOOR,
    OVERLAPS,
    PRIVATE,
    RANDOM,
    RISKS,
    Record,
)
from dpatlas_workflow.papers.feature_learning.figures.words import privacy_words, risk_words
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import CONFIDENCE, Row, Settings, mean_and_error, some, span
from dpatlas_workflow.show.tables import Cell, Math, Measured, Part

MEASURED = {
    "overlap_private": ("overlap, private", OVERLAPS["private"]),
    "overlap_direction": ("overlap, direction", OVERLAPS["direction"]),
    "overlap_non_private": ("overlap, non-private", OVERLAPS["non-private"]),
    "risk_private": ("risk, private", RISKS[PRIVATE]),
    "risk_direction": ("risk, direction", RISKS["direction"]),
    "risk_random_private": ("risk, random private", RISKS["random private"]),
    "risk_non_private": ("risk, non-private", RISKS["non-private"]),
    "risk_random_non_private": ("risk, random non-private", RISKS[RANDOM]),
    "ridge_floor": ("ridge floor of private", RISKS[FLOOR]),
}
SYMBOLS = ("link", Math("d"), Math("n"), Math("p"), Math(r"\varepsilon"))
SLOPE_SETTINGS = ("d", "p", "epsilon", "least", "most", "points")
COLUMNS = (
    "part",
    *CONDITION,
    *(f"{name}_{part}" for name in MEASURED for part in ("mean", "standard_error")),
    *("least", "most", "points"),
    *("slope_of", "slope", "slope_low", "slope_high", "slope_standard_error"),
    "runs_used",
)


def feature_risk_table(records: Sequence[Record], settings: Settings) -> ShownTable:
    """Every condition once, with overlaps and risks over runs; then slopes of log risk in log n."""
    order = ("table", *AXES)
    ordered = sorted(some(records, "simulation"), key=lambda record: order.index(record.spec.axis))
    conditions = condition_rows(ordered)
    along_n = [record for record in ordered if record.spec.axis == "n"]
    slopes = [row for record in along_n for row in slope_rows(record)]
    parts = [conditions_part(conditions, ordered)] + ([slopes_part(slopes)] if slopes else [])
    return ShownTable(COLUMNS, [*conditions, *map(_slope_row, slopes)], parts)


def condition_rows(records: Sequence[Record]) -> list[Row]:
    """A row for every condition, from the first of the records that have it."""
    rows: dict[Any, Row] = {}
    for record in records:
        data = columns([record]).drop_duplicates([*CONDITION, "features", "run"])
        for at, condition in data.groupby(list(CONDITION), sort=False):
            if at in rows:
                continue
            named = dict(zip(CONDITION, at, strict=True))
            row = {"part": "condition", **named, "runs": list(record.ids)}
            for name, (_, kind) in MEASURED.items():
                of_kind = condition[condition.features == kind.features]
                values = of_kind[kind.measure].to_numpy(float)
                row |= mean_and_error(name, values) | {"runs_used": len(values)}
            rows[at] = row
    return list(rows.values())


def conditions_part(rows: Sequence[Row], records: Sequence[Record]) -> Part:
    """A line for every condition."""
    runs = span(row["runs_used"] for row in rows)
    caption = (
        f"{privacy_words(records)}; {risk_words(records)}; "
        + ("one run" if runs == "1" else f"mean ± standard error of {runs} runs")
        + "; overlap: mean |cosine| of the neurons with mu; risk after descent, private for "
        "private, direction and random private; the report prints no numbers to set beside these"
    )
    lines: list[tuple[Cell, ...]] = [
        (*(row[name] for name in CONDITION), *(Measured.of(row, name) for name in MEASURED))
        for row in rows
    ]
    headings: tuple[str | Math, ...] = (*SYMBOLS, *(heading for heading, _ in MEASURED.values()))
    return Part(caption, headings, lines)


def slopes_part(rows: Sequence[Row]) -> Part:
    """A line for every link, a column for every kind of features and read-out."""
    lines = []
    for link in dict.fromkeys(row["link"] for row in rows):
        shown = [row for row in rows if row["link"] == link]
        settings = (shown[0][name] for name in SLOPE_SETTINGS)
        lines.append((link, *settings, *map(slope_text, shown)))
    headings = (
        *("link", Math("d"), Math("p"), Math(r"\varepsilon")),
        *("least n", "largest n", "points"),
        *SLOPES,
    )
    caption = (
        "Slope of log risk in log n, by least squares in every run: mean over runs and, in "
        f"brackets, its {CONFIDENCE:.0%} t interval"
    )
    return Part(caption, headings, lines)


def _slope_row(row: Row) -> Row:
    """A row of slopes in the columns of the table."""
    shared = ("part", "link", *SLOPE_SETTINGS, "runs_used", "runs")
    ends = {f"slope_{end}": row[end] for end in ("low", "high", "standard_error")}
    return {
        **{name: row[name] for name in shared},
        **{"slope_of": row["series"], "slope": row["value"], **ends},
    }
