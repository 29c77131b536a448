"""dp_sgld, records of kind accuracy: tuned methods compared at equal epsilon."""

from typing import Literal

from dpatlas.core.facts import ReportedFields
from dpatlas.papers.dp_sgld.records import Count, Positive, Schedule
from dpatlas.papers.dp_sgld.records.regression import (
    Comparison,
    RegressionFields,
    RegressionMetrics,
)
from dpatlas.papers.dp_sgld.records.trained import LangevinRow, SgdRow


class Accuracy(RegressionFields):
    """Settings of the arms. schedule: of Langevin steps. batch: expected size of mini-batches."""

    schedule: Schedule | Literal["both"]
    epsilons: list[Positive]
    batch: Count


class Spec(Accuracy, ReportedFields):
    """Settings of a job."""


class SgdArm(SgdRow):
    """DP-SGD under one comparison, or SGD; learning rates are constant, without a schedule."""

    comparison: Comparison | None
    schedule: None


class LangevinArm(LangevinRow):
    """Langevin SGD with its noise calibrated under one comparison."""

    comparison: Comparison
    schedule: Schedule


class Metrics(RegressionMetrics):
    """rows: one for every arm, in the order of the job's `compared`."""

    VERSION = 2

    rows: list[LangevinArm | SgdArm]
