"""dp_sgld, records of kind finetune: DP-SGD with ever more of the backbone trained, Table 3."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.facts import BackboneUsed
from dpatlas.core.records import Typed
from dpatlas.papers.dp_sgld.records import Count, Positive, Positives
from dpatlas.papers.dp_sgld.records.trained import SgdRow, TrainedSpec


class Trainable(Typed):
    """Trained parts of the network, by the beginning of their names; `name` stands in tables."""

    name: str
    trainable: Annotated[list[str], Field(min_length=1)]


class Spec(TrainedSpec):
    """Settings of a job. batch: expected size. steps: updates. lrs: rates that every arm tries."""

    epsilons: list[Positive]
    relation: Literal["add_remove", "replace_one"]
    batch: Count
    steps: Count
    lrs: Positives
    unfreeze: Annotated[list[Trainable], Field(min_length=1)]


class Row(SgdRow):
    """An arm. unfreeze: name of the trained parts. trained_parameters: their number of weights."""

    unfreeze: str
    trained_parameters: int


class Metrics(records.Metrics):
    """Numbers of records and rows: those without privacy first, then by epsilon."""

    n_train: int
    n_validation: int
    n_test: int
    classes: int
    backbone: BackboneUsed
    rows: list[Row]
