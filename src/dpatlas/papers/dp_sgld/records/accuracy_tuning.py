"""dp_sgld, records of kind accuracy_tuning: the settings that every arm tried."""

from typing import Annotated

from pydantic import Field

from dpatlas.core.facts import TuningFields, TuningMetrics
from dpatlas.core.records import Typed
from dpatlas.papers.dp_sgld.records import Counts, NonNegative, Positives
from dpatlas.papers.dp_sgld.records.accuracy import Accuracy


class Grid(Typed):
    """Settings to try.

    batches, epochs: of mini-batches; steps: of full batches. lambda, step_sizes: of Langevin SGD,
    step sizes in units of 1 / beta. weight_decays, lr, max_grad_norms: of DP-SGD.
    """

    batches: Counts
    epochs: Counts
    steps: Counts
    lam: Positives = Field(alias="lambda")
    step_sizes: Positives
    weight_decays: Annotated[list[NonNegative], Field(min_length=1)]
    lr: Positives
    max_grad_norms: Positives


class Spec(Accuracy, TuningFields):
    """Settings of a job."""

    grid: Grid


class Metrics(TuningMetrics):
    """One row for every arm."""
