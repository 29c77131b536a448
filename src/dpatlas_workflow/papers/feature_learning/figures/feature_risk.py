"""Figure feature_risk: the risk of learned and of random features, and the laws that it follows."""

from collections.abc import Sequence

from dpatlas_workflow.papers.feature_learning.figures.laws import (
    crossing_rows,
    ladder_rows,
    rate_rows,
    slope_rows,
)
from dpatlas_workflow.papers.feature_learning.figures.panels import grid, layout, panel, risk_axis
from dpatlas_workflow.papers.feature_learning.figures.rows import (
    COLUMNS,
    FLOOR,
    PRIVATE,
    RISKS,
    Record,
    series_rows,
)
from dpatlas_workflow.papers.feature_learning.figures.words import (
    risk_words,
    setting_note,
    warning_notes,
)
from dpatlas_workflow.show.look import Look
from dpatlas_workflow.show.panel import Axis, Panel, ShownFigure, Words, points, series
from dpatlas_workflow.show.rows import CONFIDENCE, Row, Settings, grouped, where

LOOKS = {name: kind.look for name, kind in RISKS.items()}
LAWS = {
    "rate": Look("fitted rate", "black", "", "--"),
    "theorem": Look("power of Theorem 1", "black", "", ":"),
    "crossing": Look("meeting point", "black", "o", "", size=6, fill="none"),
}
# Side by side, but for the two whose crossing is marked.
SIDES = ("direction", "random private", PRIVATE, "random private of both", "non-private")
# By axis, what is varied and the networks whose slopes are told below the panels.
PRIVATE_SLOPES = {PRIVATE: "matrix", "direction": "direction", "random private": "random"}
SHOWN_SLOPES = {
    "n": ("n", PRIVATE_SLOPES),
    "p": ("p", {PRIVATE: "matrix", "direction": "direction", "non-private": "non-private"}),
    "ladder": ("d", PRIVATE_SLOPES),
}
# Of the height of the curves.
ROOM_FOR_MEETING = 0.12
RISK_COLUMNS = ("part", *COLUMNS, "R0", "c", "least", "most", "points")


def feature_risk(records: Sequence[Record], settings: Settings) -> ShownFigure:
    """Risk by features and read-out, with the fitted rate, and where private meets random."""
    rows: list[Row] = []
    panels, lines = [], layout(records)
    for line in lines:
        of_line = {record.id: risk_rows(record) for record in line}
        shown = [row for each in of_line.values() for row in each]
        above = ROOM_FOR_MEETING if where(shown, part="crossing") else 0.0
        drawn = [row for row in shown if row["part"] != "slope"]
        risk = risk_axis("risk $E(f - s)^2$", drawn, above)
        panels.append([_panel(record, risk, of_line[record.id]) for record in line])
        rows += shown
    names = {row[column] for row in rows for column in ("series", "part")}
    legend = [look for name, look in (LOOKS | LAWS).items() if name in names]
    shown_records = [record for line in lines for record in line]
    notes = [
        f"{setting_note(shown_records)}; {risk_words(shown_records)}",
        *_law_notes(rows),
        *warning_notes(shown_records),
    ]
    return ShownFigure([grid(panels)], RISK_COLUMNS, rows, notes, legend)


def risk_rows(record: Record) -> list[Row]:
    """The points of a panel, and the laws behind them."""
    points = [
        {"part": "risk", **row}
        for name, kind in RISKS.items()
        for row in series_rows(record, name, kind)
    ]
    # A line to compare with: drawn without intervals.
    for row in points:
        if row["series"] == FLOOR:
            row["low"] = row["high"] = None
    return [
        *points,
        *rate_rows(record, points),
        *ladder_rows(record, points),
        *crossing_rows(record, points),
        *slope_rows(record),
    ]


def _panel(record: Record, risk: Axis, rows: list[Row]) -> Panel:
    """Risks and laws; a thin line and a number where private features meet random ones."""
    along = record.spec.along
    risks = where(rows, part="risk")
    centred = {name: look for name, look in LOOKS.items() if name not in SIDES}
    drawn = series(risks, along, centred)
    drawn += points(risks, along, {name: LOOKS[name] for name in SIDES})
    drawn += series([row for row in rows if row["part"] in LAWS], along, LAWS, "part")
    top = risk.ends[1] or 1.0
    at = [row[along] for row in where(rows, part="crossing")]
    numbers = [Words(f"{float(f'{x:.3g}'):g}", (x, top), align=("center", "top")) for x in at]
    return panel(record, risk, drawn, words=numbers, upright=at)


def _law_notes(rows: Sequence[Row]) -> list[str]:
    """What slopes, meeting points and the fits of the rate are."""
    notes, parts = [], {part: shown for (part,), shown in grouped(rows, "part").items()}
    if "slope" in parts:
        notes.append(
            "slope: of log risk in log n, log p or log d, by least squares in every run; mean "
            f"over runs and half-width of its {CONFIDENCE:.0%} t interval: "
            f"{_slopes_text(parts['slope'])}"
        )
    if "theorem" in parts:
        notes.append(
            "power of Theorem 1: d^(-eps_p/(8 q)) with p = d^(eps_p) and the link's degree q, "
            "drawn through the first private risk"
        )
    if "crossing" in parts:
        notes.append(
            "meeting point: where the means of private, matrix and random, non-private cross, "
            "lines drawn straight between logarithms"
        )
    if "rate" in parts:
        fits = [
            f"{link} along {axis} R0 = {fits[0]['R0']:.3g}, c = {fits[0]['c']:.3g}"
            for (link, axis), fits in grouped(parts["rate"], "link", "axis").items()
        ]
        notes.append(
            "fitted rate: R0 + c d^(1 + eps_n)/n log(1.25/delta)/eps^2 (Theorem 1's second term, "
            "n = d^(1 + 3 eps_n)), R0 >= 0 and c >= 0 by least squares on the mean private risks: "
            + "; ".join(fits)
        )
    return notes


def _slopes_text(slopes: Sequence[Row]) -> str:
    """Slopes by link and axis with their intervals, which are symmetric."""
    texts = []
    for (axis, link, epsilon), of_panel in grouped(slopes, "axis", "link", "epsilon").items():
        varied, shown = SHOWN_SLOPES[axis]
        varied = varied if epsilon else f"{varied}, epsilon falling"
        numbers = []
        for row in of_panel:
            if row["series"] in shown:
                half = row["high"] and f"\xa0±\xa0{row['high'] - row['value']:.3f}"
                numbers.append(f"{shown[row['series']]} {row['value']:z.3f}{half or ''}")
        texts.append(f"{link} in {varied}: {', '.join(numbers)}")
    return "; ".join(texts)
