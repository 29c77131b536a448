"""Plans of DP-SGD with calibrated or given noise, and statements about their privacy."""

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
    """Epsilons of an arm at the problem's delta; None where there is none.

    claimed: by the paper. ordinary: by composition, for the release of every iterate. hidden_state:
    for the last iterate, where a bound applies. guaranteed: the smallest that holds, proved `by`
    which bound; relation: its neighbour relation.
    """

    claimed: float | None = None
    ordinary: float | None = None
    hidden_state: float | None = None
    guaranteed: float | None = None
    relation: str | None = None
    by: str | None = None

    def as_row(self) -> dict[str, Any]:
        """The entries of a record's row."""
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

    With noise multiplier 0 it is SGD on batches of the same sampler, clipped at `NO_CLIP`.
    """

    sampler: Sampler
    steps: int
    max_grad_norm: float
    delta: float
    relation: str
    accountant: str = "auto"
    noise_multiplier: float = 0.0

    def calibrated(self, epsilon: float | None) -> "DpSgdPlan":
        """The plan with the noise that meets `epsilon`; without noise for None."""
        if epsilon is None:
            return replace(self, noise_multiplier=0.0)
        blocks = ((1.0, self.steps),)
        asked = (epsilon, self.delta, self.relation, self.accountant)
        return replace(self, noise_multiplier=calibrate_steps(self.sampler, blocks, *asked))

    def on(self, n: int) -> "DpSgdPlan":
        """The plan for `n` records: equal steps with equal noise on a mean gradient.

        Batches keep their size; where there are fewer records, a batch is all of them, and its
        noise multiplier is smaller in proportion.
        """
        if n == self.sampler.n:
            return self
        resized = self.sampler.on(n)
        noise = self.noise_multiplier * resized.batch / self.sampler.batch
        return replace(self, sampler=resized, noise_multiplier=noise)

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.noise_multiplier > 0

    def phase(self, lr: float, steps: int | None = None, **more: Any) -> TrainingPhase:
        """A phase of `steps` updates (None: all) at learning rate `lr`; `more`: other settings."""
        steps = self.steps if steps is None else steps
        noise, bound = self.noise_multiplier, self.max_grad_norm
        return dp_sgd_phase(self.sampler, noise, bound, steps, lr, **more)

    @functools.cached_property
    def stated(self) -> Stated:
        """The guarantee by composition, which does not depend on phases; nothing without noise.

        Raises InputError for noise that guarantees nothing.
        """
        if not self.private:
            return Stated()
        phases = [Phase(self.sampler, self.noise_multiplier, self.steps)]
        composed = guarantee(phases, self.delta, self.relation, self.accountant)
        if not math.isfinite(composed.epsilon):
            raise InputError("noise_multiplier", self.noise_multiplier, "0, or a finite epsilon's")
        by = f"{EVERY_ITERATE}, {composed.accountant.upper()}"
        epsilon = composed.epsilon
        return Stated(epsilon, epsilon, None, epsilon, self.relation, by)

    def facts(self) -> dict[str, Any]:
        """Entries of a record's row; without noise, max_grad_norm and noise_multiplier are None."""
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
    """A phase that clips at `max_grad_norm` if there is noise, else at `NO_CLIP`."""
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

    blocks: (factor, steps). Cached, because many points of a grid have the same arguments.
    """

    def phases_at(noise: float) -> list[Phase]:
        return [Phase(sampler, factor * noise, steps) for factor, steps in blocks]

    return calibrate(phases_at, epsilon, delta, relation, accountant)
