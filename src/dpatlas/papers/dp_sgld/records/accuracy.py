"""dp_sgld, records of kind accuracy: methods compared on frozen features, Tables 1 and 2."""

from typing import Literal

from pydantic import Field

from dpatlas.core.records import Typed
from dpatlas.papers.dp_sgld.records import Count, Counts, Positive, Positives, Schedule
from dpatlas.papers.dp_sgld.records.regression import (
    Comparison,
    RegressionMetrics,
    RegressionSpec,
)
from dpatlas.papers.dp_sgld.records.trained import LangevinRow, SgdRow


class Grid(Typed):
    """Settings to try: lambda and epochs (full batches: steps) for Langevin SGD, lr for DP-SGD."""

    lam: Positives = Field(alias="lambda")
    epochs: Counts
    steps: Counts
    lr: Positives


class Spec(RegressionSpec):
    """Settings of a job. schedule: of Langevin steps. batch: expected size of mini-batches."""

    schedule: Schedule | Literal["both"]
    epsilons: list[Positive]
    batch: Count
    grid: Grid


class SgdArm(SgdRow):
    """DP-SGD under one comparison, or SGD; learning rates are constant, without a schedule."""

    comparison: Comparison | None
    schedule: None


class LangevinArm(LangevinRow):
    """Langevin SGD with its noise calibrated under one comparison."""

    comparison: Comparison
    schedule: Schedule


class Metrics(RegressionMetrics):
    """rows: one for every arm, in the order of the job's `arms_of`."""

    rows: list[LangevinArm | SgdArm]
