"""dp_sgld: typed records, one module per kind; here the types that their specs share."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core.records import SpecFields

Schedule = Literal["constant", "decreasing"]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Delta = Annotated[float, Field(gt=0, lt=1)]
Counts = Annotated[list[Count], Field(min_length=1)]
Positives = Annotated[list[Positive], Field(min_length=1)]


class RunSpec(SpecFields):
    """Settings of every spec of dp_sgld: the base of its seeds and the source of its noise."""

    seed: int
    noise_source: Literal["keyed", "os"]
