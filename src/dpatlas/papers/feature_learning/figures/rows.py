"""Records of feature_learning as rows: what a measure of some features is over runs, by condition.

A condition is a link with d, n, p and epsilon. `value` is a mean over runs, `low` to `high` its t
interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpatlas.core.statistics import mean_estimate
from dpatlas.errors import InputError
from dpatlas.show.look import MUTED, Look
from dpatlas.show.output import Records, Row
from dpatlas.show.series import BLUE, GREEN, ORANGE, PINK, RED, of_kind

Record = Mapping[str, Any]

CONFIDENCE = 0.95
# A sweep runs along one of these; what runs along none is for the table.
AXES = ("n", "p", "d", "epsilon")
CONDITION = ("link", "d", "n", "p", "epsilon")
VALUES = ("value", "low", "high", "standard_error", "runs_used")


@dataclass(frozen=True)
class Series:
    """A measure of one kind of features, by their names in a record, and how it is drawn."""

    features: str
    measure: str
    look: Look


PRIVATE, RANDOM, FLOOR = "private", "random non-private", "ridge floor"
OVERLAPS = {
    "private": Series("private", "overlap", Look("private, matrix", BLUE, "o", "-")),
    "direction": Series("direction", "overlap", Look("private, direction", GREEN, "^", "-.")),
    "non-private": Series("nonprivate", "overlap", Look("non-private step", "black", "v", "-")),
    "random": Series("random", "overlap", Look(r"random $W_0$", RED, "s", "--")),
    "printed": Series("printed", "overlap", Look(r"printed $\sigma_W$", PINK, "D", ":")),
}
RISKS = {
    PRIVATE: Series("private", "risk_private", Look("private, matrix", BLUE, "o", "-")),
    "direction": Series("direction", "risk_private", Look("private, direction", GREEN, "^", "-.")),
    "random private": Series("random", "risk_private", Look("random, private", RED, "s", "--")),
    "random private of both": Series(
        "random-both", "risk_private", Look("random, private, both data sets", ORANGE, "P", ":")
    ),
    "non-private": Series("nonprivate", "risk", Look("non-private", "black", "v", "-")),
    RANDOM: Series("random", "risk", Look("random, non-private", MUTED, "D", "--")),
    FLOOR: Series("private", "risk_floor", Look("ridge on private", BLUE, "", "--")),
}


def simulations(records: Records) -> list[Record]:
    """The records of simulations; InputError where there is none."""
    found = of_kind(records, "simulation")
    if not found:
        raise InputError("--records", "none of kind simulation", "at least one")
    return found


def series_rows(record: Record, name: str, series: Series) -> list[Row]:
    """A row for every condition of a sweep that has the measure, in the order of its axis."""
    axis = record["spec"]["axis"]
    rows = [
        {
            "axis": axis,
            **condition(record, found),
            "series": name,
            **over_runs(found[series.measure]),
            "runs": [record["id"]],
        }
        for found in record["metrics"]["rows"]
        if found["features"] == series.features and found[series.measure] is not None
    ]
    return sorted(rows, key=lambda row: row[axis])


def condition(record: Record, found: Record) -> Row:
    """The condition of a row of the record."""
    return {"link": record["spec"]["link"], **{name: found[name] for name in CONDITION[1:]}}


def over_runs(values: Sequence[float]) -> Row:
    """Mean of the runs, its t interval and its standard error; a single run has neither."""
    estimate = mean_estimate(values)
    found = {"value": estimate.value, "runs_used": estimate.runs}
    if estimate.runs == 1:
        return found | dict.fromkeys(("low", "high", "standard_error"))
    low, high = estimate.interval(CONFIDENCE)
    return found | {"low": low, "high": high, "standard_error": estimate.standard_error}
