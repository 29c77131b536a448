"""Fields that all private trainings of lp_fft share, in the config and in specs."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.facts import DataFields
from dpatlas.base.fields import (
    Accountant,
    Batch,
    Delta,
    MaxGradNorm,
    Model,
    NoiseSource,
    Relation,
    setting,
)
from dpatlas.base.records import SpecFields

PhysicalBatch = Annotated[
    Annotated[int, Field(ge=1, le=10_000_000)] | None,
    setting(
        "Largest number of records in memory at a time; null for the whole batch. Changes results "
        "by rounding alone."
    ),
]
HeadScale = Annotated[float, setting("Factor on the initial weights of the head.", gt=0)]
FeatureScale = Annotated[
    float, setting("Factor by which features are multiplied before they reach the head.", gt=0)
]
Noise = Annotated[float, Field(ge=0)]
# Part of the network that a phase trains: LP the head, FFT all weights, LoRA its adapters and the
# head.
Part = Literal["head", "full", "lora"]
HEAD: Part = "head"
FULL: Part = "full"
LORA: Part = "lora"


class Privacy(Model):
    """Guarantee and clipping of all private trainings."""

    delta: Delta
    relation: Relation
    accountant: Accountant
    max_grad_norm: MaxGradNorm
    max_physical_batch: PhysicalBatch


class PrivateFields(SpecFields, Privacy):
    """Private data, the id of the run that trains the public backbone, and the privacy."""

    seed: int
    noise_source: NoiseSource
    data: DataFields
    backbone: str
    batch: Batch
