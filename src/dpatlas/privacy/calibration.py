"""Noise for a wanted epsilon, whatever the phases, schedules and clips."""

from collections.abc import Sequence
from dataclasses import replace

from dpatlas.accounting.guarantees import calibrate, default_delta, default_relation
from dpatlas.base.guard import checked, real
from dpatlas.errors import InputError
from dpatlas.privacy.phases import TrainingPhase, training_phases


@checked(epsilon=real(gt=0))
def at_epsilon(
    phases: Sequence[TrainingPhase],
    epsilon: float,
    delta: float | None = None,
    relation: str | None = None,
    accountant: str = "auto",
) -> tuple[TrainingPhase, ...]:
    """The phases with the least noise that together meets (epsilon, delta).

    The noise multipliers of `phases` count relative to each other: all are multiplied by one
    factor, which has four significant digits and is rounded up. Schedules and adaptive clip bounds
    are accounted as in training. delta: None for `default_delta`. relation: None for add_remove
    where the samplers allow it, else replace_one.

    Raises InputError for phases without noise, and as `calibrate` does.
    """
    phases = training_phases(phases)
    if not phases:
        raise InputError("phases", "none", "at least one")
    for phase in phases:
        if not phase.noise_multiplier:
            raise InputError("noise_multiplier", 0, "a number > 0, relative to the other phases'")

    def scaled(factor: float) -> tuple[TrainingPhase, ...]:
        return tuple(
            replace(phase, noise_multiplier=factor * phase.noise_multiplier) for phase in phases
        )

    planned = [each for phase in phases for each in phase.accounted_phases]
    if relation is None:
        relation = default_relation(planned)
    if delta is None:
        delta = default_delta(min(phase.sampler.n for phase in planned))
    factor = calibrate(
        lambda factor: [each for phase in scaled(factor) for each in phase.accounted_phases],
        epsilon,
        delta,
        relation,
        accountant,
    )
    return scaled(factor)
