"""dp_sgld, records of kind finetune: DP-SGD with ever more of the backbone trained, Table 3."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.facts import BackboneUsed, ReportedFields
from dpatlas.core.records import Typed
from dpatlas.papers.dp_sgld.records import Count, Positive
from dpatlas.papers.dp_sgld.records.trained import SgdRow, TrainingSpec


class Trainable(Typed):
    """Trained parts of the network, by the beginning of their names; `name` stands in tables."""

    name: str
    trainable: Annotated[list[str], Field(min_length=1)]


class Finetune(TrainingSpec):
    """Settings of the arms. batch: expected size. steps: updates."""

    epsilons: list[Positive]
    relation: Literal["add_remove", "replace_one"]
    batch: Count
    steps: Count
    unfreeze: Annotated[list[Trainable], Field(min_length=1)]


class Spec(Finetune, ReportedFields):
    """Settings of a job."""


class Row(SgdRow):
    """An arm. unfreeze: name of the trained parts. trained_parameters: their number of weights."""

    unfreeze: str
    trained_parameters: int


class Metrics(records.Metrics):
    """Numbers of records of a run, and rows: those without privacy first, then by epsilon."""

    VERSION = 2

    n_train: int
    n_test: int
    classes: int
    backbone: BackboneUsed
    rows: list[Row]
