"""dp_sgld, records of kind accuracy_tuning: the settings that every arm tried."""

from pydantic import Field

from dpatlas.core.facts import TuningFields, TuningMetrics
from dpatlas.core.records import Typed
from dpatlas.papers.dp_sgld.records import Counts, Positives
from dpatlas.papers.dp_sgld.records.accuracy import Accuracy


class Grid(Typed):
    """Settings to try: lambda and epochs (full batches: steps) for Langevin SGD, lr for DP-SGD."""

    lam: Positives = Field(alias="lambda")
    epochs: Counts
    steps: Counts
    lr: Positives


class Spec(Accuracy, TuningFields):
    """Settings of a job."""

    grid: Grid


class Metrics(TuningMetrics):
    """One row for every arm."""
