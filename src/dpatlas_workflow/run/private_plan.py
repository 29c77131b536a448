"""Phases of DP-SGD with calibrated or given noise, and statements about their privacy."""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

from dpatlas.accounting.guarantees import Phase, calibrate, guarantee
from dpatlas.accounting.ledger import EVERY_ITERATE
from dpatlas.accounting.samplers import Sampler
from dpatlas.errors import InputError
from dpatlas.privacy.phases import TrainingPhase

# Clip bound of training without noise, far above the norm of a gradient.
NO_CLIP = 1e6


@dataclass(frozen=True)
class Stated:
    """Columns of an arm's row: epsilons at the problem's delta, None where there is none.

    claimed: by the paper. ordinary: by composition, for the release of every iterate. hidden_state:
    for the last iterate, where a bound applies. guaranteed: the smallest that holds, proved `by`
    which bound; relation: its neighbour relation.
    """

    claimed_epsilon: float | None = None
    ordinary_epsilon: float | None = None
    hidden_state_epsilon: float | None = None
    guaranteed_epsilon: float | None = None
    relation: str | None = None
    guaranteed_by: str | None = None


def dp_sgd_phase(
    sampler: Sampler,
    noise_multiplier: float,
    max_grad_norm: float,
    steps: int,
    lr: float,
    **more: Any,
) -> TrainingPhase:
    """A phase that clips at `max_grad_norm` if there is noise, else at `NO_CLIP`."""
    bound = max_grad_norm if noise_multiplier else NO_CLIP
    return TrainingPhase(sampler, noise_multiplier, bound, steps, lr, **more)


def resized(phase: TrainingPhase, n: int) -> TrainingPhase:
    """The phase for `n` records: equal steps with equal noise on a mean gradient.

    Batches keep their size; where there are fewer records, a batch is all of them, and its noise
    multiplier is smaller in proportion.
    """
    if n == phase.sampler.n:
        return phase
    sampler = phase.sampler.on(n)
    noise = phase.noise_multiplier * sampler.batch / phase.sampler.batch
    return replace(phase, sampler=sampler, noise_multiplier=noise)


def composed(phase: Phase, delta: float, relation: str, accountant: str) -> Stated:
    """The guarantee of DP-SGD by composition; nothing without noise.

    Raises InputError for noise that guarantees nothing.
    """
    if not phase.noise_multiplier:
        return Stated()
    account = guarantee([phase], delta, relation, accountant)
    if not math.isfinite(account.epsilon):
        raise InputError("noise_multiplier", phase.noise_multiplier, "0, or a finite epsilon's")
    by = f"{EVERY_ITERATE}, {account.accountant.upper()}"
    return Stated(account.epsilon, account.epsilon, None, account.epsilon, relation, by)


def calibrated(
    sampler: Sampler,
    steps: int,
    epsilon: float | None,
    delta: float,
    relation: str,
    accountant: str,
) -> float:
    """The noise multiplier at which `steps` steps have `epsilon`; 0 for None."""
    if epsilon is None:
        return 0.0
    return calibrate_steps(sampler, ((1.0, steps),), epsilon, delta, relation, accountant)


@functools.cache
def calibrate_steps(
    sampler: Sampler,
    blocks: tuple[tuple[float, int], ...],
    epsilon: float,
    delta: float,
    relation: str,
    accountant: str,
) -> float:
    """The noise multiplier z at which steps with multipliers factor * z have `epsilon`.

    blocks: (factor, steps). Cached, because many points of a grid have the same arguments.
    """

    def phases_at(noise: float) -> list[Phase]:
        return [Phase(sampler, factor * noise, steps) for factor, steps in blocks]

    return calibrate(phases_at, epsilon, delta, relation, accountant)
