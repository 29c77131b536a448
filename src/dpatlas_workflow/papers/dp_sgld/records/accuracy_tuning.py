"""Records of kind `accuracy_tuning`: the settings that every arm tried."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.facts import TuningFields, tuning_record
from dpatlas.base.fields import CountList, Model, Once, PositiveList, setting
from dpatlas_workflow.papers.dp_sgld.records import StepSize
from dpatlas_workflow.papers.dp_sgld.records.accuracy import AccuracyFields

Batches = Annotated[CountList, setting("Sizes of mini-batches that every method tries.")]


class AccuracyGrid(Model):
    """Settings that every arm tries on records of no run; a set may have its own grid."""

    epochs: CountList = setting("Passes over the records of mini-batches.")
    steps: CountList = setting("Steps of full batches.")
    lam: PositiveList = Field(alias="lambda")
    step_sizes: Once[StepSize] = setting(
        "Steps of Langevin SGD in units of 1 / beta, below 1.", min_length=1
    )
    weight_decays: Once[Annotated[float, Field(ge=0)]] = setting(
        "L2 terms of DP-SGD and SGD, tried where batch, rate and clip bound are best without one.",
        min_length=1,
    )
    lr: PositiveList
    max_grad_norms: PositiveList = setting("Clip bounds of DP-SGD.")


class WholeGrid(AccuracyGrid):
    """With the batches of a set."""

    batches: Batches


class AccuracyTuningSpec(AccuracyFields, TuningFields):
    """The tuning."""

    kind: Literal["accuracy_tuning"]
    grid: WholeGrid


RECORD = tuning_record(AccuracyTuningSpec)
