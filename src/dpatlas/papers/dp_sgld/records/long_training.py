"""dp_sgld, records of kind long_training: accuracy against the number of full-batch steps."""

from dpatlas.papers.dp_sgld.records import Counts, Positive, Positives
from dpatlas.papers.dp_sgld.records.regression import (
    Comparison,
    RegressionMetrics,
    RegressionSpec,
)
from dpatlas.papers.dp_sgld.records.trained import LangevinRow, SgdRow


class Spec(RegressionSpec):
    """Settings of a job. lambdas: tried by Langevin SGD. lrs: tried by DP-SGD."""

    epsilon: Positive
    steps: Counts
    lambdas: Positives
    lrs: Positives


class SgdArm(SgdRow):
    """DP-SGD for `steps` steps. comparison: the one under which its noise is calibrated."""

    comparison: Comparison


class LangevinArm(LangevinRow):
    """Langevin SGD for `steps` steps. comparison: the one under which its noise is calibrated."""

    comparison: Comparison


class Metrics(RegressionMetrics):
    """rows: one for every number of steps and method."""

    rows: list[LangevinArm | SgdArm]
