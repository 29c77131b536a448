"""lp_fft: specs and records of kind `dynamics`."""

import math
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dpatlas.core import records
from dpatlas.core.records import SpecFields, Typed
from dpatlas.papers.lp_fft.records.theory import Angle, Count, Positive, Several

Phase = Literal["head", "all"]
Heads = Literal["random", "aligned"]
# Half of them belong to each class.
Halves = Annotated[int, Field(ge=2, multiple_of=2)]


class PhasePlan(Typed):
    """Noise levels, draws of data and network, and simulated paths for each draw and noise."""

    sigmas: list[Positive]
    draws: Count
    paths: Several


class Phases(Typed):
    """Plans of linear probing, which trains the head, and of FFT, which trains all layers."""

    head: PhasePlan
    all: PhasePlan


class ReluNets(Typed):
    """Two-layer ReLU networks on clusters within `angle` degrees of an axis; losses at `times`.

    step: of the integrators; the times are equally spaced multiples of it.
    """

    records: Halves
    inputs: Several
    hidden: Halves
    angle: Angle
    head_variance: float
    step: Positive
    times: list[Positive] = Field(min_length=1)
    phases: Phases

    @field_validator("times")
    @classmethod
    def _are_whole_steps_apart(cls, times: list[float], info: ValidationInfo) -> list[float]:
        step = info.data.get("step")
        if step is None:
            return times
        steps = times[0] / step
        # The quotient of two valid numbers may be infinite.
        width = max(1, round(steps)) * step if math.isfinite(steps) else steps
        # The tolerances of numpy.allclose.
        for number, time in enumerate(times):
            apart = time - (times[number - 1] if number else 0.0)
            if abs(apart - width) > 1e-8 + 1e-5 * width:
                raise PydanticCustomError("times", "equal distances, whole numbers of steps")
        return times


class LinearProbing(Typed):
    """Linear probing of a linear network; b_norm2: squared norm of what features fit of Y."""

    records: Count
    inputs: Count
    hidden: Count
    head_variance: float
    sigma2: float
    b_norm2: float
    paths: Several
    times: list[Positive]

    @field_validator("times")
    @classmethod
    def _increase(cls, times: list[float]) -> list[float]:
        if sorted(set(times)) != times:
            raise PydanticCustomError("times", "increasing times above 0")
        return times


class LinearFineTuning(Typed):
    """FFT of linear networks of `sizes` (d, h) under Assumption E.7, until time `span` / A.

    head_excess: head variance over the smallest allowed. noise_share: sigma^2 over the largest
    allowed. step: of Euler's method, times the head's curvature h beta_h. points: number of times
    at which the loss is recorded.
    """

    sizes: list[Annotated[list[Count], Field(min_length=2, max_length=2)]]
    head_excess: float = Field(gt=1)
    noise_share: float = Field(gt=0, lt=1)
    step: Positive
    span: Positive
    points: Count
    paths: Several


class Spec(SpecFields):
    """Thms 4.2 and 4.3 on ReLU networks, Eq. 161, Thms 4.4 and 4.5 on linear ones."""

    relu: ReluNets
    probing: LinearProbing
    fine_tuning: LinearFineTuning


class BracketRow(Typed):
    """Losses of one class beside the bounds of Thm 4.2 (phase head) or 4.3 (phase all).

    label: of the class, 1 or -1. start: the loss at time 0. lower, upper: the bounds. zeroth: loss
    of the zeroth-order model. diffusion, standard_error: mean loss over paths. All (times,).
    """

    phase: Phase
    heads: Heads
    draw: int
    sigma: float
    label: int = Field(alias="class")
    start: float
    lower: list[float]
    upper: list[float]
    zeroth: list[float]
    diffusion: list[float]
    standard_error: list[float]


class Violations(Typed):
    """Number of cases (draw, sigma), and of those in which a loss leaves its bracket."""

    phase: Phase
    heads: Heads
    cases: int
    zeroth_below: int
    zeroth_above: int
    diffusion_below: int
    diffusion_above: int


class Probed(Typed):
    """E ||v_t||^2 and E L of linear probing, simulated and by formula, (times,) each.

    norm_paper: Eq. 161 as printed; norm_exact: with its sign corrected. loss_bound_paper,
    loss_bound_exact: Thm 4.4 with gamma as printed and halved.
    """

    times: list[float]
    norm: list[float]
    norm_standard_error: list[float]
    norm_paper: list[float]
    norm_exact: list[float]
    loss: list[float]
    loss_standard_error: list[float]
    loss_exact: list[float]
    loss_bound_paper: list[float]
    loss_bound_exact: list[float]


class Tuned(Typed):
    """E L of FFT and the bound of Thm 4.5 at `times` in units of 1/rate, (times,).

    largest_ratio: largest mean loss over bound, with its standard error.
    """

    d: int
    h: int
    head_variance: float
    sigma2: float
    rate: float
    times: list[float]
    loss: list[float]
    standard_error: list[float]
    bound: list[float]
    largest_ratio: float
    largest_ratio_error: float


class Metrics(records.Metrics):
    """times: of the ReLU networks' losses. relu: rows by phase, heads, draw, sigma, class."""

    times: list[float]
    relu: list[BracketRow]
    counts: list[Violations]
    probing: Probed
    fine_tuning: list[Tuned]
