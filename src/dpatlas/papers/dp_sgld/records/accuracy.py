"""dp_sgld, records of kind accuracy: tuned methods compared at equal epsilon."""

from typing import Literal

from dpatlas.core.facts import ReportedFields
from dpatlas.papers.dp_sgld.records import Positive, Schedule
from dpatlas.papers.dp_sgld.records.regression import (
    Comparison,
    RegressionFields,
    RegressionMetrics,
)
from dpatlas.papers.dp_sgld.records.trained import LangevinRow, SgdRow


class Accuracy(RegressionFields):
    """Settings of the arms. schedule: of Langevin steps."""

    schedule: Schedule | Literal["both"]
    epsilons: list[Positive]


class Spec(Accuracy, ReportedFields):
    """Settings of a job."""


class SgdArm(SgdRow):
    """DP-SGD under one comparison, or SGD; learning rates are constant, without a schedule.

    weight_decay: times the weights, added to the gradient; 0 without L2 term.
    """

    weight_decay: float
    comparison: Comparison | None
    schedule: None


class LangevinArm(LangevinRow):
    """Langevin SGD with its noise calibrated under one comparison."""

    comparison: Comparison
    schedule: Schedule


class Metrics(RegressionMetrics):
    """rows: one for every arm, in the order of the job's `compared`."""

    VERSION = 3

    rows: list[LangevinArm | SgdArm]
