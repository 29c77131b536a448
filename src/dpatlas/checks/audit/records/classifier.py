"""Spec fields that all private trainings of a classifier share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from dpatlas.core.facts import DataFields
from dpatlas.core.fields import NoiseSource
from dpatlas.core.records import SpecFields


class Data(DataFields):
    """A data set: the sizes of its parts, or the sha256 of a set that is already prepared."""

    sha256: str | None = None


class Classifier(SpecFields):
    """Settings of a training; a selection leaves out those that each trial draws.

    One of epsilon, to which the noise is calibrated, and noise_multiplier is None.
    """

    seed: int
    noise_source: NoiseSource
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


@dataclass(frozen=True)
class Extras:
    """What `dpatlas train` wants besides the record; the workflow wants none of it.

    models: folder that trained networks are saved under. show_private_loss: whether progress shows
    the loss of training records.
    """

    models: Path | None = None
    show_private_loss: bool = False
