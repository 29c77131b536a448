"""dp_sgld, records of kind protocol: Tables 1 and 2 as the paper ran them."""

from typing import Annotated

from pydantic import Field

from dpatlas.core.facts import ReportedFields
from dpatlas.core.records import OverRuns, Typed
from dpatlas.papers.dp_sgld.records import Count, Positive, Schedule
from dpatlas.papers.dp_sgld.records.regression import RegressionFields, RegressionMetrics
from dpatlas.papers.dp_sgld.records.trained import LangevinRow, SgdRow


class Reading(Typed):
    """A reading of the paper's settings, which all methods share.

    name: in tables and claims. step_size: the first step, in units of 1 / beta. lam: weight of the
    regulariser. without_l2: whether DP-SGD is run without the regulariser as well.
    """

    name: str
    step_size: Positive
    lam: Positive = Field(alias="lambda")
    schedules: Annotated[list[Schedule], Field(min_length=1)]
    without_l2: bool


class Protocol(RegressionFields):
    """Settings of the arms. batch: expected size. epochs: passes over the records, of every arm."""

    epsilon: Positive
    batch: Count
    epochs: Count
    readings: Annotated[list[Reading], Field(min_length=1)]


class Spec(Protocol, ReportedFields):
    """Settings of a job."""


class SgdArm(SgdRow):
    """DP-SGD or SGD. weight_decay: times the weights, added to the gradient; 0 without L2 term.

    best_epoch_accuracy: the largest over the ends of all epochs, chosen on the test records as the
    authors' code does; no guarantee covers the choice.
    """

    reading: str
    schedule: Schedule
    weight_decay: float
    best_epoch_accuracy: OverRuns[float]


class LangevinArm(LangevinRow):
    """Langevin SGD, its noise by Thm 3.2 with K = epochs. best_epoch_accuracy: as for SGD."""

    reading: str
    schedule: Schedule
    best_epoch_accuracy: OverRuns[float]


class Metrics(RegressionMetrics):
    """rows: one for every reading, schedule and method."""

    rows: list[LangevinArm | SgdArm]
