"""Records of kind `finetune_tuning`: the learning rates that every arm tried."""

from typing import Literal

from dpatlas.base.facts import TuningFields, tuning_record
from dpatlas.base.fields import Model, PositiveList
from dpatlas_workflow.papers.dp_sgld.records.finetune import Finetune


class FinetuneRates(Model):
    """What is tried."""

    lrs: PositiveList


class FinetuneTuningSpec(Finetune, TuningFields, FinetuneRates):
    """The tuning."""

    kind: Literal["finetune_tuning"]


RECORD = tuning_record(FinetuneTuningSpec)
