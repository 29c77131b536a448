"""Records of kind `accuracy`: tuned methods compared at equal epsilon.

comparison: under which the noise is calibrated (`jobs.arms`); None without privacy. schedule: of
Langevin steps; None for DP-SGD and SGD, whose learning rate is constant.
"""

from typing import Annotated, Literal

from dpatlas.base.facts import ReportedFields
from dpatlas.base.fields import PositiveList, setting
from dpatlas_workflow.papers.dp_sgld.records import RegressionSpec, regression_record

LangevinSchedule = Annotated[
    Literal["constant", "decreasing", "both"],
    setting("Step sizes of the Langevin arms; both share the rows of DP-SGD and No DP."),
]


class AccuracyFields(RegressionSpec):
    """The arms, of reported runs and of their tuning."""

    schedule: LangevinSchedule
    epsilons: PositiveList


class AccuracySpec(AccuracyFields, ReportedFields):
    """Reported runs."""

    kind: Literal["accuracy"]


RECORD = regression_record(AccuracySpec, 4, arms="comparison schedule weight_decay")
