"""dp_sgld, records of kind long_training: accuracy against the number of full-batch steps."""

from dpatlas.core.facts import ReportedFields
from dpatlas.papers.dp_sgld.records import Counts, Positive
from dpatlas.papers.dp_sgld.records.regression import (
    Comparison,
    RegressionFields,
    RegressionMetrics,
)
from dpatlas.papers.dp_sgld.records.trained import LangevinRow, SgdRow


class LongTraining(RegressionFields):
    """Settings of the arms: epsilon of each, and the numbers of steps."""

    epsilon: Positive
    steps: Counts


class Spec(LongTraining, ReportedFields):
    """Settings of a job."""


class SgdArm(SgdRow):
    """DP-SGD for `steps` steps. comparison: the one under which its noise is calibrated."""

    comparison: Comparison


class LangevinArm(LangevinRow):
    """Langevin SGD for `steps` steps. comparison: the one under which its noise is calibrated."""

    comparison: Comparison


class Metrics(RegressionMetrics):
    """A row for every number of steps and method."""

    VERSION = 3

    rows: list[LangevinArm | SgdArm]
