"""Public schedules: what a learning rate or a noise multiplier is multiplied by at every step.

A schedule maps a step of its phase, from 0, to a factor. It may depend on nothing but the step:
whatever else it read could be private, and a resumed run could not repeat it. The schedules here
are such functions; any other callable is evaluated for every step when the phase is made, in two
orders that must agree, and from then on it is this list of numbers (`Listed`).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from dpatlas.base.guard import Domain, hold, integer, plain, real
from dpatlas.errors import InputError

Schedule = Callable[[int], float]
# Accounting takes half a second for each distinct noise multiplier on a Poisson sample.
MOST_LEVELS = 24
LEAST_SHARE = 1e-300


@dataclass(frozen=True)
class InverseTime:
    """1 / (1 + decay step), for steps from 0; InputError unless decay >= 0."""

    decay: float

    def __post_init__(self) -> None:
        hold(self, "decay", real(ge=0))

    def __call__(self, step: int) -> float:
        """The factor of a step."""
        return 1 / (1 + self.decay * step)


@dataclass(frozen=True)
class WarmupCosine:
    """A linear rise to 1 over `warmup` steps, then half a cosine down to `final` at step `steps`.

    Step k has (k + 1) / warmup, or final + (1 - final) (1 + cos(pi s)) / 2 with
    s = (k - warmup) / (steps - warmup), and `final` from step `steps` on (Loshchilov and Hutter
    2017, Eq. 5, without restarts). InputError unless 0 <= warmup <= steps and 0 <= final <= 1.
    """

    warmup: int
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        hold(self, "steps", integer(ge=1))
        hold(self, "warmup", integer(ge=0, le=self.steps))
        hold(self, "final", real(ge=0, le=1))

    def __call__(self, step: int) -> float:
        """The factor of a step."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if step >= self.steps:
            return self.final
        share = (step - self.warmup) / (self.steps - self.warmup)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class StepDecay:
    """factor^(number of whole `every` steps passed); InputError unless every >= 1, factor > 0."""

    every: int
    factor: float

    def __post_init__(self) -> None:
        hold(self, "every", integer(ge=1))
        hold(self, "factor", real(gt=0))

    def __call__(self, step: int) -> float:
        """The factor of a step."""
        return self.factor ** (step // self.every)


@dataclass(frozen=True)
class Listed:
    """The factors of the first steps, one by one; InputError for a step beyond them."""

    factors: tuple[float, ...]

    def __call__(self, step: int) -> float:
        """The factor of a step."""
        if step >= len(self.factors):
            allowed = f"at most {len(self.factors)}, for which the schedule was evaluated"
            raise InputError("steps", step + 1, allowed)
        return self.factors[step]


NAMED = (InverseTime, WarmupCosine, StepDecay, Listed)


def public_schedule(name: str, schedule: object, steps: int, domain: Domain) -> Schedule | None:
    """The schedule of `steps` steps as a function of the step alone; None stays None.

    Raises InputError, under `name`, for what is no function of the step and for factors outside of
    the domain.
    """
    if schedule is None:
        return None
    if not callable(schedule):
        raise InputError(name, repr(schedule), "a function of the step, or None")
    factors = [plain(schedule(step)) for step in range(steps)]
    for step, factor in enumerate(factors):
        domain.check(f"{name}, step {step}", factor)
    # Not a subclass, which may compute anything.
    if type(schedule) in cast(tuple[type, ...], NAMED):
        return schedule
    for step in reversed(range(steps)):
        again = plain(schedule(step))
        if again != factors[step]:
            found = f"{factors[step]!r} and then {again!r} at step {step}"
            raise InputError(name, found, "a pure function of the step, evaluated before training")
    return Listed(tuple(map(float, factors)))


def accounted_levels(noises: Iterable[float]) -> dict[float, float]:
    """The noise multiplier that each of `noises` is accounted at: itself, or a smaller one.

    More than `MOST_LEVELS` distinct ones are divided into as many ranges of equal ratio, and each
    is accounted at the least in its range: an upper bound on the privacy loss.
    """
    ordered = sorted(set(noises))
    # A level of 0, or of so small a share of the largest, guarantees nothing, however grouped.
    if len(ordered) <= MOST_LEVELS or ordered[0] <= ordered[-1] * LEAST_SHARE:
        return {noise: noise for noise in ordered}
    width = math.log(ordered[-1] / ordered[0]) / MOST_LEVELS
    least: dict[int, float] = {}
    levels = {}
    for noise in ordered:
        part = min(int(math.log(noise / ordered[0]) / width), MOST_LEVELS - 1)
        levels[noise] = least.setdefault(part, noise)
    return levels


def schedule_facts(schedule: Schedule | None) -> Any:
    """The schedule as JSON values: its numbers, or its name and parameters."""
    if schedule is None:
        return None
    if isinstance(schedule, Listed):
        return list(schedule.factors)
    return {"name": type(schedule).__name__, **vars(schedule)}
