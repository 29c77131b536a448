"""Laws behind feature_learning's risks: slopes, the report's rate, and where curves cross."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.optimize import nnls

from dpatlas.formulas.feature_learning.rates import risk_rate
from dpatlas_workflow.papers.feature_learning.figures.rows import (
    CONDITION,
    PRIVATE,
    RANDOM,
    RISKS,
    Record,
    measured,
)
from dpatlas_workflow.show.rows import Row, over_runs, where

# Sweeps along which the risk is fitted by a power: of n, of p, and of d on a ladder.
SLOPE_AXES = ("n", "p", "ladder")
SLOPES = (PRIVATE, "direction", "random private", "non-private", RANDOM)
# Axes that the report's rate depends on at a fixed d.
RATE_AXES = ("n", "epsilon")
# More than the two numbers that are fitted.
LEAST_POINTS = 3
# What rows of laws take from the row of a private risk.
OF_RISK = ("axis", "link", "d", "n", "p", "epsilon", "series", "runs")


def slope_rows(record: Record) -> list[Row]:
    """Log-log slopes of risk along n, p or a ladder, over runs; none of less than two points.

    Each run is fitted by itself.
    """
    along, rows = record.spec.along, []
    for name in SLOPES:
        points = measured(record, RISKS[name])
        at = [row[along] for row, _ in points]
        if record.spec.axis not in SLOPE_AXES or len(set(at)) < 2:
            continue
        logs = np.log([values for _, values in points])
        slopes = np.polyfit(np.log(at), logs, 1)[0].tolist()
        rows.append(
            {
                "part": "slope",
                "axis": record.spec.axis,
                "link": record.spec.link,
                **_fixed([row for row, _ in points]),
                **{"least": min(at), "most": max(at), "points": len(at)},
                "series": name,
                **over_runs(slopes),
                "runs": list(record.ids),
            }
        )
    return rows


def _fixed(points: Sequence[Row]) -> Row:
    """What all conditions share of d, n, p and epsilon; None of what varies."""
    return {
        name: points[0][name] if len({point[name] for point in points}) == 1 else None
        for name in CONDITION[1:]
    }


def ladder_rows(record: Record, risks: Sequence[Row]) -> list[Row]:
    """Theorem 1's rate d^(-eps_p / (8 q)) along a ladder, through the first private risk.

    None where epsilon falls along it.
    """
    shown = where(risks, series=PRIVATE)
    if record.spec.axis != "ladder" or record.spec.vanishes or not shown:
        return []
    first, last = shown[0], shown[-1]
    power = math.log(last["p"]) / math.log(last["d"]) / (8 * record.facts["degree"])
    return [
        _of_law("theorem", row, first["value"] * (row["d"] / first["d"]) ** -power) for row in shown
    ]


def _of_law(part: str, risk: Row, value: float, **further: float) -> Row:
    """A row of a law at the condition of a private risk."""
    return {**{name: risk[name] for name in OF_RISK}, "part": part, "value": value, **further}


def slope_text(row: Row) -> str:
    """A slope with its interval, if it has one."""
    if row["low"] is None:
        return f"{row['value']:.3f}"
    return f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def rate_rows(record: Record, risks: Sequence[Row]) -> list[Row]:
    """R0 + c times the rate of Theorem 1 at the conditions of a sweep, fitted to private `risks`.

    None along p and d, for an information exponent above 1, and for too few points.
    """
    axis, exponent = record.spec.axis, record.facts["information_exponent"]
    shown = where(risks, series=PRIVATE)
    if axis not in RATE_AXES or exponent > 1 or len(shown) < LEAST_POINTS:
        return []
    delta = record.spec.delta
    rates = [float(risk_rate(row["n"], row["d"], row["epsilon"], delta)) for row in shown]
    offset, factor = fitted(rates, [row["value"] for row in shown])
    return [
        _of_law("rate", row, offset + factor * rate, R0=offset, c=factor)
        for row, rate in zip(shown, rates, strict=True)
    ]


def fitted(rates: Sequence[float], risks: Sequence[float]) -> tuple[float, float]:
    """R0 >= 0 and c >= 0 of least squares of risks (points,) to R0 + c rates (points,)."""
    columns = np.column_stack([np.ones(len(rates)), np.array(rates, float)])
    (offset, factor), _ = nnls(columns, np.array(risks))
    return float(offset), float(factor)


def crossing_rows(record: Record, risks: Sequence[Row]) -> list[Row]:
    """Where private features cross non-private random ones along n or epsilon, if they do."""
    axis = record.spec.axis
    private, random = where(risks, series=PRIVATE), where(risks, series=RANDOM)
    if axis not in RATE_AXES or not private:
        return []
    meetings = crossings(
        [row[axis] for row in private],
        [row["value"] for row in private],
        [row["value"] for row in random],
    )
    return [{**_of_law("crossing", private[0], value), axis: x} for x, value in meetings]


def crossings(
    at: Sequence[float], first: Sequence[float], second: Sequence[float]
) -> list[tuple[float, float]]:
    """Places and values where two curves through points (points,) cross, straight in log-log."""
    logs = zip(np.log(at), np.log(first), np.log(first) - np.log(second), strict=True)
    meetings = []
    for (x, y, gap), (next_x, next_y, next_gap) in pairwise(logs):
        if gap and gap * next_gap <= 0:
            share = gap / (gap - next_gap)
            at_x, value = x + share * (next_x - x), y + share * (next_y - y)
            meetings.append((math.exp(at_x), math.exp(value)))
    return meetings
