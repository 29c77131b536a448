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
    """What every arm tries: lam and epochs (full batch: steps) by Langevin SGD, lr by DP-SGD."""

    lam: Positives = Field(alias="lambda")
    epochs: Counts
    steps: Counts
    lr: Positives


class Spec(RegressionSpec):
    """Settings of a job; `schedule` is of the Langevin steps. batch: expected, of mini-batches."""

    schedule: Schedule | Literal["both"]
    epsilons: list[Positive]
    batch: Count
    grid: Grid


class SgdArm(SgdRow):
    """DP-SGD under one comparison, or SGD: its learning rate is constant and has no schedule."""

    comparison: Comparison | None
    schedule: None


class LangevinArm(LangevinRow):
    """Langevin SGD whose noise one comparison calibrates."""

    comparison: Comparison
    schedule: Schedule


class Metrics(RegressionMetrics):
    """Rows: one for every arm, in the order of `arms_of`."""

    rows: list[LangevinArm | SgdArm]
