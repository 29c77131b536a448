"""What specs of a classifier's private training say, whoever chooses its settings."""

from typing import Annotated

from pydantic import Field

from dpatlas.core.facts import DataFields
from dpatlas.core.records import SpecFields


class Data(DataFields):
    """A data set: its parts, or the sha256 of one that was prepared before."""

    sha256: str | None = None


class Classifier(SpecFields):
    """Settings of a classifier's training; those that trials draw are not set.

    The noise is calibrated to epsilon or given as noise_multiplier, the other one is None.
    """

    seed: int
    noise_source: str
    data: Data
    model: str
    epsilon: float | None
    delta: Annotated[float, Field(gt=0, lt=1)]
    relation: str
    sampler: str
    batch: int
    steps: int
    noise_multiplier: float | None
    max_grad_norm: float | None = None
    clipping: str
    max_physical_batch: int | None
    lr: float | None = None
    momentum: float
    optimizer: str
    weight_decay: float
