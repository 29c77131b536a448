"""What specs of lp_fft's private trainings say alike."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core.facts import DataFields
from dpatlas.core.records import SpecFields

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
# Parts of a network that a phase trains: LP the head, FFT everything, LoRA its branches and the
# head.
Part = Literal["head", "full", "lora"]
HEAD: Part = "head"
FULL: Part = "full"
LORA: Part = "lora"


class PrivateFields(SpecFields):
    """Data, public backbone, expected batch and what the private training guarantees.

    backbone: id of the run that trains it. max_grad_norm: of a record's gradient.
    max_physical_batch: records of a batch that are held in memory at once; None for all.
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
