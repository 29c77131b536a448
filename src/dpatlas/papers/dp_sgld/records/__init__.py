"""dp_sgld: typed records, a module for each kind; here what the specs of all kinds are made of."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core.records import SpecFields

Schedule = Literal["constant", "decreasing"]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Delta = Annotated[float, Field(gt=0, lt=1)]
Counts = Annotated[list[Count], Field(min_length=1)]
Positives = Annotated[list[Positive], Field(min_length=1)]


class RunSpec(SpecFields):
    """What every spec of dp_sgld says: the base of its seeds and where its noise comes from."""

    seed: int
    noise_source: Literal["keyed", "os"]
