"""Records of feature_learning as rows: what a measure of some features is over runs, by condition.

A condition is a link with d, n, p and epsilon. `value` is a mean over runs, `low` to `high` its t
interval.
"""

from dataclasses import dataclass

import numpy as np

from dpatlas_workflow.papers.feature_learning.records.simulation import FeatureSimulationSpec
from dpatlas_workflow.records import Record as RecordOf
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.look import BLUE, GREEN, MUTED, ORANGE, PINK, RED, Look
from dpatlas_workflow.show.rows import Row, over_runs

Record = RecordOf[FeatureSimulationSpec]

# A sweep runs along one of these; what runs along none is for the table.
AXES = ("n", "p", "d", "epsilon", "ladder")
CONDITION = ("link", "d", "n", "p", "epsilon")
VALUES = ("value", "low", "high", "standard_error", "runs_used")
COLUMNS = ("axis", *CONDITION, "series", *VALUES)


@dataclass(frozen=True)
class FeatureSeries:
    """A measure of one kind of features, by their names in a record, and how it is drawn."""

    features: str
    measure: str
    look: Look


PRIVATE, RANDOM, FLOOR = "private", "random non-private", "ridge floor"
# The two that may coincide stand at the ends, and one of them has no line to cover the other's.
OVERLAPS = {
    "random": FeatureSeries("random", "overlap", Look(r"random $W_0$", RED, "s", "--")),
    "private": FeatureSeries("private", "overlap", Look("private, matrix", BLUE, "o", "-")),
    "direction": FeatureSeries(
        "direction", "overlap", Look("private, direction", GREEN, "^", "-.")
    ),
    "non-private": FeatureSeries(
        "nonprivate", "overlap", Look("non-private step", "black", "v", "-")
    ),
    "printed": FeatureSeries("printed", "overlap", Look(r"printed $\sigma_W$", PINK, "D", "")),
}
RISKS = {
    PRIVATE: FeatureSeries("private", "risk_private", Look("private, matrix", BLUE, "o", "-")),
    "direction": FeatureSeries(
        "direction", "risk_private", Look("private, direction", GREEN, "^", "-.")
    ),
    "random private": FeatureSeries(
        "random", "risk_private", Look("random, private", RED, "s", "--")
    ),
    "random private of both": FeatureSeries(
        "random-both", "risk_private", Look("random, private, both data sets", ORANGE, "P", ":")
    ),
    "non-private": FeatureSeries("nonprivate", "risk", Look("non-private", "black", "v", "-")),
    RANDOM: FeatureSeries("random", "risk", Look("random, non-private", MUTED, "D", "--")),
    FLOOR: FeatureSeries("private", "risk_floor", Look("ridge on private", PINK, "", "-.")),
}


def measured(record: Record, series: FeatureSeries) -> list[tuple[Row, np.ndarray]]:
    """The conditions in which the measure was taken, each with its values, (runs,)."""
    data = columns([record], features=series.features).dropna(subset=[series.measure])
    return [
        (dict(zip(CONDITION, at, strict=True)), runs[series.measure].to_numpy(float))
        for at, runs in data.groupby(list(CONDITION), sort=False)
    ]


def series_rows(record: Record, name: str, series: FeatureSeries) -> list[Row]:
    """A row for every condition of a sweep that has the measure, in the order of its axis."""
    rows = [
        {
            "axis": record.spec.axis,
            **condition,
            "series": name,
            **over_runs(values),
            "runs": list(record.ids),
        }
        for condition, values in measured(record, series)
    ]
    return sorted(rows, key=lambda row: row[record.spec.along])
