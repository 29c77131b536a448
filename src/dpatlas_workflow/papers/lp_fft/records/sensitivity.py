"""Records of kind `sensitivity`: Fig. 9, sensitivities at the start and during training.

`start`, by d and reading of Prop. E.10: means over `seeds` networks, with standard errors (_error).
record: largest gradient norm over the records; ball: over all records of norm and label at most
one. ratio: sensitivity of the head over that of the features.

`drift`, by kind of noise: mean ratio of the head's record sensitivity to the features', with its
error, as lists over steps.
"""

from typing import Literal, Self

from pydantic import model_validator

from dpatlas.base.fields import CountList, Model, setting
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.records.theory import (
    Every,
    Hidden,
    RecordsPerInput,
    SeveralNetworks,
    SolverStep,
    SolverSteps,
    Variance,
)

# Prop. E.10 prints v_0 ~ N(0, beta I) with beta = h / sqrt(d), the variance or the deviation.
Reading = Literal["variance", "deviation"]
READINGS: tuple[Reading, ...] = ("variance", "deviation")


class SensitivityStart(Model):
    """Layer sensitivities before training, against the number of inputs."""

    hidden: Hidden
    records_per_input: RecordsPerInput
    dims: CountList
    seeds: SeveralNetworks

    @model_validator(mode="after")
    def _has_more_inputs_than_hidden(self) -> Self:
        if min(self.dims) <= self.hidden:
            raise InputError("dims", self.dims, f"more than hidden = {self.hidden}")
        return self


class SensitivityDrift(Model):
    """Layer sensitivities during private training."""

    d: int = setting("Inputs.", ge=2, le=100_000)
    hidden: Hidden
    records_per_input: RecordsPerInput
    reading: Reading = setting(
        "Whether the printed h / sqrt(d) is the variance or the deviation of the initial head."
    )
    seeds: SeveralNetworks
    sigma2: Variance
    step: SolverStep
    steps: SolverSteps
    every: Every

    @model_validator(mode="after")
    def _has_more_inputs_than_hidden(self) -> Self:
        if self.d <= self.hidden:
            raise InputError("d", self.d, f"more than hidden = {self.hidden}")
        return self


class Sensitivity(Model):
    """Gradients of both layers of a linear network (Fig. 9)."""

    start: SensitivityStart
    drift: SensitivityDrift


class SensitivitySpec(SpecFields, Sensitivity):
    """The simulations."""

    kind: Literal["sensitivity"]


RECORD = RecordShape(
    SensitivitySpec,
    version=1,
    facts="",
    tables={
        "start": "d h reading head_variance seeds record_head record_head_error record_features "
        "record_features_error record_ratio record_ratio_error ball_head ball_head_error "
        "ball_features ball_features_error ball_ratio ball_ratio_error",
        "drift": "noise d h reading steps ratio error",
    },
)
