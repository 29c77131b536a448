"""Fields that the specs of all private trainings of lp_fft share."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core.facts import DataFields
from dpatlas.core.fields import setting
from dpatlas.core.records import SpecFields

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
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


class PrivateFields(SpecFields):
    """Data, public backbone, expected batch size and privacy of the training.

    backbone: id of the run that trains it. max_grad_norm: clip bound of a record's gradient.
    max_physical_batch: records of a batch held in memory at once; None for all.
    """

    seed: int
    noise_source: Literal["keyed", "os"]
    data: DataFields
    backbone: str
    batch: Count
    delta: float = Field(gt=0, lt=1)
    relation: Literal["add_remove", "replace_one"]
    accountant: Literal["auto", "pld", "rdp"]
    max_grad_norm: Positive
    max_physical_batch: Count | None
