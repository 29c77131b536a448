"""DP-SGD before its noise is chosen, and what is said of a run's privacy."""

import functools
from dataclasses import dataclass
from typing import Any

from dpatlas.privacy.accounting import Phase, calibrate, guarantee
from dpatlas.privacy.ledger import EVERY_ITERATE
from dpatlas.privacy.samplers import Sampler


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
    """DP-SGD before its noise is chosen: `steps` updates of one law."""

    sampler: Sampler
    steps: int
    delta: float
    relation: str
    accountant: str = "auto"

    def noise_multiplier(self, epsilon: float | None) -> float:
        """Calibrated; 0 for None, which trains without privacy."""
        if epsilon is None:
            return 0.0
        blocks = ((1.0, self.steps),)
        return calibrate_steps(
            self.sampler, blocks, epsilon, self.delta, self.relation, self.accountant
        )

    def stated(self, noise_multiplier: float) -> Stated:
        """What composition guarantees; nothing without noise."""
        if not noise_multiplier:
            return Stated()
        phases = [Phase(self.sampler, noise_multiplier, self.steps)]
        found = guarantee(phases, self.delta, self.relation, self.accountant)
        by = f"{EVERY_ITERATE}, {found.accountant.upper()}"
        return Stated(found.epsilon, found.epsilon, None, found.epsilon, self.relation, by)


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
