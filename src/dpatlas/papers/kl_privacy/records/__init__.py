"""Records of kl_privacy, a module for each kind of job; here what the specs of all kinds say."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core.facts import DataFields
from dpatlas.core.records import SpecFields

Init = Literal["lecun", "he", "ntk", "xavier"]
# Number of weight matrices L.
Depth = Annotated[int, Field(ge=2)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
# Position of a record among the training records and, after them, those to add, as prepared.
Position = Annotated[int, Field(ge=0)]


class KlSpec(SpecFields):
    """Fields of every spec of the paper."""

    key: Literal["kl_privacy"]
    seed: int
    noise_source: Literal["keyed", "os"]
    data: DataFields
