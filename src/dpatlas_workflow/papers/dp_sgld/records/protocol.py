"""Records of kind `protocol`: Tables 1 and 2 as the paper ran them.

best_epoch_accuracy: the largest over the ends of all epochs, chosen on the test records as the
authors' code does; no guarantee covers the choice. l2: whether the method has the reading's
regulariser, which DP-SGD can do without. Langevin noise is by Thm 3.2 with K = epochs.
"""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.facts import ReportedFields
from dpatlas.base.fields import Batch, Epsilon, Model, setting
from dpatlas_workflow.papers.dp_sgld.records import (
    Epochs,
    RegressionSpec,
    Regulariser,
    Schedules,
    StepSize,
    names_once,
    regression_record,
)


class Reading(Model):
    """A reading of the paper's settings, the same for all methods."""

    name: str = setting("Name in tables and claims.", pattern="^[a-z0-9 ]{1,30}$")
    step_size: StepSize
    lam: Regulariser = Field(alias="lambda")
    schedules: Schedules
    without_l2: bool = setting("Whether DP-SGD is run without the L2 term as well.")


class Shared(Model):
    """What all methods share."""

    epsilon: Epsilon
    batch: Batch
    epochs: Epochs


class ProtocolFields(RegressionSpec, Shared):
    """The arms, of reported runs and of their tuning."""

    readings: Annotated[list[Reading], Field(min_length=1)]

    _names = names_once("readings")


class ProtocolSpec(ProtocolFields, ReportedFields):
    """Reported runs."""

    kind: Literal["protocol"]


RECORD = regression_record(
    ProtocolSpec, 2, arms="reading schedule l2 weight_decay", runs="best_epoch_accuracy"
)
