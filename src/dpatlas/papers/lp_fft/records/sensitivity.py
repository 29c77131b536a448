"""lp_fft: specs and records of kind `sensitivity`."""

from typing import Literal

from pydantic import ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dpatlas.core import records
from dpatlas.core.records import SpecFields, Typed
from dpatlas.papers.lp_fft.records.theory import Count, LayerNoise, Positive, Several

# Prop. E.10 prints v_0 ~ N(0, beta I) with beta = h / sqrt(d), the variance or the deviation.
Reading = Literal["variance", "deviation"]
READINGS: tuple[Reading, ...] = ("variance", "deviation")


class Start(Typed):
    """`seeds` random networks on records_per_input * d records, before training."""

    hidden: Count
    records_per_input: Several
    dims: list[Count]
    seeds: Several

    @field_validator("dims")
    @classmethod
    def _exceed_hidden(cls, dims: list[int], info: ValidationInfo) -> list[int]:
        hidden = info.data.get("hidden", 0)
        if any(d <= hidden for d in dims):
            raise PydanticCustomError("dims", "more than hidden = {hidden}", {"hidden": hidden})
        return dims


class Drift(Typed):
    """Noisy gradient descent on d inputs, measured every `every` steps."""

    hidden: Count
    records_per_input: Several
    d: Count
    reading: Reading
    seeds: Several
    sigma2: float
    step: Positive
    steps: Count
    every: Count

    @field_validator("d")
    @classmethod
    def _exceeds_hidden(cls, d: int, info: ValidationInfo) -> int:
        hidden = info.data.get("hidden", 0)
        if d <= hidden:
            raise PydanticCustomError("d", "more than hidden = {hidden}", {"hidden": hidden})
        return d


class Spec(SpecFields):
    """Fig. 9: sensitivities at the start, and their ratio during training."""

    start: Start
    drift: Drift


class StartRow(Typed):
    """Sensitivities of both layers at d inputs: means over networks, with standard errors.

    record: largest gradient norm over the records; ball: over all records of norm and label at most
    one. ratio: sensitivity of the head over that of the features.
    """

    d: int
    h: int
    reading: Reading
    head_variance: float
    seeds: int
    record_head: float
    record_head_error: float
    record_features: float
    record_features_error: float
    record_ratio: float
    record_ratio_error: float
    ball_head: float
    ball_head_error: float
    ball_features: float
    ball_features_error: float
    ball_ratio: float
    ball_ratio_error: float


class DriftRow(Typed):
    """Mean ratio of the head's record sensitivity to the features', with its error, (steps,)."""

    noise: LayerNoise
    d: int
    h: int
    reading: Reading
    steps: list[int]
    ratio: list[float]
    error: list[float]


class Metrics(records.Metrics):
    """start: rows by d and reading. drift: rows by kind of noise."""

    start: list[StartRow]
    drift: list[DriftRow]
