"""Records of kind `long_training_tuning`: the settings that every arm tried."""

from typing import Literal

from dpatlas.base.facts import TuningFields, tuning_record
from dpatlas.base.fields import Model, PositiveList
from dpatlas_workflow.papers.dp_sgld.records.long_training import LongTraining


class LongGrid(Model):
    """What Langevin SGD and DP-SGD try."""

    lambdas: PositiveList
    lrs: PositiveList


class LongTrainingTuningSpec(LongTraining, TuningFields, LongGrid):
    """The tuning."""

    kind: Literal["long_training_tuning"]


RECORD = tuning_record(LongTrainingTuningSpec)
