"""DP-SGD with calibrated or given noise, and what is said of its privacy."""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

from dpatlas.errors import InputError
from dpatlas.privacy.accounting import Phase, calibrate, guarantee
from dpatlas.privacy.ledger import EVERY_ITERATE
from dpatlas.privacy.samplers import Sampler
from dpatlas.privacy.training import TrainingPhase

# A bound on norms that no gradient reaches.
NO_CLIP = 1e6


@dataclass(frozen=True)
class Stated:
    """What is claimed of an arm and what holds, at the problem's delta; None where nothing is.

    claimed: by the paper. ordinary: composition, for the release of every iterate. hidden_state:
    for the last iterate, where a bound applies. guaranteed: the least of those that hold, `by`
    which one; relation: its neighbours.
    """

    claimed: float | None = None
    ordinary: float | None = None
    hidden_state: float | None = None
    guaranteed: float | None = None
    relation: str | None = None
    by: str | None = None

    def as_row(self) -> dict[str, Any]:
        """For a record."""
        return {
            "claimed_epsilon": self.claimed,
            "ordinary_epsilon": self.ordinary,
            "hidden_state_epsilon": self.hidden_state,
            "guaranteed_epsilon": self.guaranteed,
            "relation": self.relation,
            "guaranteed_by": self.by,
        }


@dataclass(frozen=True)
class DpSgdPlan:
    """`steps` updates of DP-SGD, in one phase or several of equal noise.

    Without a noise_multiplier it is SGD on batches of the same law, unclipped.
    """

    sampler: Sampler
    steps: int
    max_grad_norm: float
    delta: float
    relation: str
    accountant: str = "auto"
    noise_multiplier: float = 0.0

    def calibrated(self, epsilon: float | None) -> "DpSgdPlan":
        """With the noise that has `epsilon`; without any for None."""
        if epsilon is None:
            return replace(self, noise_multiplier=0.0)
        blocks = ((1.0, self.steps),)
        asked = (epsilon, self.delta, self.relation, self.accountant)
        return replace(self, noise_multiplier=calibrate_steps(self.sampler, blocks, *asked))

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.noise_multiplier > 0

    def phase(self, lr: float, steps: int | None = None, **more: Any) -> TrainingPhase:
        """`steps` of the updates, None for all, at one rate; `more` as `TrainingPhase` has it."""
        steps = self.steps if steps is None else steps
        noise, bound = self.noise_multiplier, self.max_grad_norm
        return dp_sgd_phase(self.sampler, noise, bound, steps, lr, **more)

    @functools.cached_property
    def stated(self) -> Stated:
        """What composition guarantees, wherever phases meet; nothing without noise.

        Raises InputError for noise that guarantees nothing.
        """
        if not self.private:
            return Stated()
        phases = [Phase(self.sampler, self.noise_multiplier, self.steps)]
        found = guarantee(phases, self.delta, self.relation, self.accountant)
        if not math.isfinite(found.epsilon):
            raise InputError("noise_multiplier", self.noise_multiplier, "0, or a finite epsilon's")
        by = f"{EVERY_ITERATE}, {found.accountant.upper()}"
        return Stated(found.epsilon, found.epsilon, None, found.epsilon, self.relation, by)

    def facts(self) -> dict[str, Any]:
        """For a row of a record; max_grad_norm and noise_multiplier are None without privacy."""
        return {
            "batch": self.sampler.batch,
            "steps": self.steps,
            "max_grad_norm": self.max_grad_norm if self.private else None,
            "noise_multiplier": self.noise_multiplier if self.private else None,
            "sampler": self.sampler.name,
        }


def dp_sgd_phase(
    sampler: Sampler,
    noise_multiplier: float,
    max_grad_norm: float,
    steps: int,
    lr: float,
    **more: Any,
) -> TrainingPhase:
    """A phase whose gradients are clipped only where noise is added."""
    bound = max_grad_norm if noise_multiplier else NO_CLIP
    return TrainingPhase(sampler, noise_multiplier, bound, steps, lr, **more)


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

    blocks: (factor, steps). Points of a grid that differ in nothing else share the search.
    """

    def phases_at(noise: float) -> list[Phase]:
        return [Phase(sampler, factor * noise, steps) for factor, steps in blocks]

    return calibrate(phases_at, epsilon, delta, relation, accountant)
