"""Records of kind `finetune`: DP-SGD with ever more of the backbone trained, Table 3.

unfreeze: name of the trained parts. trained_parameters: their number of weights. Arms without
privacy come first, then those of each epsilon.
"""

from typing import Literal

from dpatlas.base.facts import ReportedFields
from dpatlas.base.fields import Batch, Model, Once, PositiveList, Relation, Updates, setting
from dpatlas.base.records import RecordShape
from dpatlas_workflow.papers.dp_sgld.records import ARM, RUNS, SgldTrainingSpec, names_once


class TrainedParts(Model):
    """What one arm of the fine-tuning trains."""

    name: str = setting("Name in tables.", min_length=1, max_length=40)
    trainable: Once[str] = setting(
        "Parts of the network, by the beginning of their names; head is the new head.",
        min_length=1,
    )


class FinetuneArms(Model):
    """Settings of the arms."""

    epsilons: PositiveList
    relation: Relation
    batch: Batch
    steps: Updates
    unfreeze: list[TrainedParts] = setting("What is trained, the fewest parts first.", min_length=2)

    _names = names_once("unfreeze")


class Finetune(SgldTrainingSpec, FinetuneArms):
    """The arms, of reported runs and of their tuning."""


class FinetuneSpec(Finetune, ReportedFields):
    """Reported runs."""

    kind: Literal["finetune"]


RECORD = RecordShape(
    FinetuneSpec,
    version=3,
    facts="n_train n_test classes backbone",
    tables={"arms": f"{ARM} unfreeze trained_parameters", "runs": RUNS},
)
