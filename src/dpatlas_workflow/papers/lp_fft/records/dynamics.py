"""Records of kind `dynamics`: Thms 4.2 and 4.3 on ReLU networks, 4.4 and 4.5 on linear ones.

times: of the ReLU networks' losses. `relu`, by phase (head: Thm 4.2, all: Thm 4.3), heads, draw,
sigma and class (1 or -1): losses of the class as lists over times. start: at time 0. lower, upper:
the bounds. zeroth: of the zeroth-order model. diffusion, standard_error: mean over paths.

`counts`, by phase and heads: number of cases (draw, sigma), and of those in which a loss leaves its
bracket.

probing: E ||v_t||^2 and E L of linear probing, simulated and by formula, lists over its times.
norm_paper: Eq. 161 as printed; norm_exact: with its sign corrected. loss_bound_paper,
loss_bound_exact: Thm 4.4 with gamma as printed and halved.

`fine_tuning`, by d and h: E L of FFT and the bound of Thm 4.5 at times in units of 1 / rate, lists
over these. largest_ratio: largest mean loss over bound, with its standard error.
"""

import math
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dpatlas.base.fields import Model, PositiveList, setting
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.records.theory import (
    Degrees,
    HeadVariance,
    Hidden,
    Inputs,
    Paths,
    Positive,
    Records,
    Variance,
)

Phase = Literal["head", "all"]
Heads = Literal["random", "aligned"]


class DynamicsPhase(Model):
    """Noise levels and sample sizes of a phase."""

    sigmas: PositiveList
    draws: int = setting("Number of draws of a network and its data.", ge=1, le=100_000)
    paths: Paths


class Phases(Model):
    """The simulated phases."""

    head: DynamicsPhase = setting("Linear probing, Thm 4.2.")
    all: DynamicsPhase = setting("Full fine-tuning, Thm 4.3.")


class ReluNets(Model):
    """Two-layer ReLU networks on two classes."""

    records: Records
    inputs: Inputs
    hidden: Hidden
    angle: Degrees
    head_variance: HeadVariance
    step: Positive = setting("Step size of the solver; times are multiples of it.")
    times: list[Positive] = setting("Times of measurement, equally spaced from 0.", min_length=1)
    phases: Phases

    @model_validator(mode="after")
    def _is_even_and_in_whole_steps(self) -> Self:
        for name in ("records", "hidden"):
            if getattr(self, name) % 2:
                raise InputError(name, getattr(self, name), "an even number, half for each class")
        steps = self.times[0] / self.step
        # The quotient of two valid numbers may be infinite.
        width = max(1, round(steps)) * self.step if math.isfinite(steps) else math.nan
        # The tolerances of numpy.allclose.
        for before, time in pairwise([0.0, *self.times]):
            if not abs(time - before - width) <= 1e-8 + 1e-5 * width:
                raise InputError("times", self.times, "equal distances, whole numbers of steps")
        return self


class LinearProbing(Model):
    """Linear probing of a linear network; hidden < inputs < records."""

    records: Records
    inputs: Inputs
    hidden: Hidden
    head_variance: float = setting("Variance beta_h of the head's initial weights.", ge=0)
    sigma2: Variance
    b_norm2: float = setting(
        "Squared norm of the part of the labels that the features can fit.", ge=0, le=1
    )
    paths: Paths
    times: list[Positive] = setting("Times of measurement, in increasing order.", min_length=1)

    @model_validator(mode="after")
    def _times_increase(self) -> Self:
        if sorted(set(self.times)) != self.times:
            raise InputError("times", self.times, "increasing times above 0")
        return self


class LinearFineTuning(Model):
    """Full fine-tuning of linear networks, Thm 4.5."""

    sizes: list[
        Annotated[list[Annotated[int, Field(ge=1, le=10_000)]], Field(min_length=2, max_length=2)]
    ] = setting(
        "Pairs of a number d of inputs and a number h <= d of hidden neurons.", min_length=1
    )
    head_excess: float = setting(
        "Head variance divided by the smallest that the theorem allows.", gt=1
    )
    noise_share: float = setting(
        "Noise variance divided by the largest that the theorem allows.", gt=0, lt=1
    )
    step: Positive = setting("Step size times h beta_h.")
    span: Positive = setting("Simulated time times the rate A of the theorem.")
    points: int = setting("Number of times of measurement.", ge=1, le=100_000)
    paths: Paths


class Dynamics(Model):
    """Simulated losses and head norms, compared with Thms 4.2 to 4.5 and Eq. 161."""

    relu: ReluNets
    probing: LinearProbing
    fine_tuning: LinearFineTuning


class DynamicsSpec(SpecFields, Dynamics):
    """The simulations."""

    kind: Literal["dynamics"]


RECORD = RecordShape(
    DynamicsSpec,
    version=1,
    facts="times probing",
    tables={
        "relu": "phase heads draw sigma class start lower upper zeroth diffusion standard_error",
        "counts": "phase heads cases zeroth_below zeroth_above diffusion_below diffusion_above",
        "fine_tuning": "d h head_variance sigma2 rate times loss standard_error bound "
        "largest_ratio largest_ratio_error",
    },
)
