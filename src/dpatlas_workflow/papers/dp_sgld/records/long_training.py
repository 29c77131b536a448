"""Records of kind `long_training`: accuracy against the number of full-batch steps.

comparison: under which the noise is calibrated (`jobs.arms`).
"""

from typing import Literal

from dpatlas.base.facts import ReportedFields
from dpatlas.base.fields import CountList, Epsilon, Model
from dpatlas_workflow.papers.dp_sgld.records import RegressionSpec, regression_record


class LongArms(Model):
    """Settings of the arms: a row for every number of steps and method."""

    epsilon: Epsilon
    steps: CountList


class LongTraining(RegressionSpec, LongArms):
    """The arms, of reported runs and of their tuning."""


class LongTrainingSpec(LongTraining, ReportedFields):
    """Reported runs."""

    kind: Literal["long_training"]


RECORD = regression_record(LongTrainingSpec, 4, arms="comparison")
