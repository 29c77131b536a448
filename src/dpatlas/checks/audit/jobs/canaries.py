"""The audit of one private training run by canaries.

Each canary has an input coordinate of its own (`privacy.side_door`), and a fair coin decides
whether it joins the training set. The attacker sees the published network alone: how much each
canary's loss falls when its coordinate is given. How many coins such an attacker guesses tests the
guaranteed privacy profile as a whole.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from dpatlas.accounting.audit_statistics import one_run_lower_bound
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.one_run import PROFILE_DELTAS, one_run_profile_test
from dpatlas.accounting.samplers import Poisson
from dpatlas.checks.audit.records.training import TrainingSpec
from dpatlas.core.guard import integer, real
from dpatlas.core.seeds import Noise, generator, seed
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.privacy.side_door import (
    SideDoor,
    side_door_canaries,
    side_door_records,
    side_door_scores,
)


@dataclass(frozen=True)
class PoissonWithEmptySlots(Poisson):
    """Poisson batches of n slots, some of which hold no record.

    As the relation add_remove requires, neither the batches of the other records nor the sample
    rate nor the divisor depends on which slots are empty.
    """

    accounted_as: ClassVar[str] = Poisson.name

    empty: frozenset[int] = frozenset()

    def batch_indices(self, noise: Noise, repetition: int, step: int) -> np.ndarray:
        """The batch without the empty slots."""
        batch = super().batch_indices(noise, repetition, step)
        return batch[[slot not in self.empty for slot in batch.tolist()]]


@dataclass(frozen=True)
class Canaries:
    """Blank images with a private coordinate each, in slots after the training records.

    x (canaries, inputs + canaries), labels (canaries,) and included (canaries,), whether each is
    trained on; empty_slots: the slots of those that are not.
    """

    x: torch.Tensor
    labels: torch.Tensor
    included: np.ndarray
    empty_slots: frozenset[int]

    @classmethod
    def of(cls, data: Prepared, fields: TrainingSpec) -> "Canaries":
        """The canaries of a spec; their coins are keyed by the base seed."""
        count = fields.canaries
        integer(ge=2).check("canaries", count)
        real(gt=0, le=1 / (2 * count)).check("delta of a run with canaries", fields.delta)
        if fields.runs != 1 or fields.clipping != "flat":
            found = f"{fields.runs} runs with {fields.clipping} clipping"
            raise InputError("canaries", found, "1 run with flat clipping")
        if fields.noise_multiplier == 0:
            raise InputError("noise_multiplier", 0, "a number > 0 in a run with canaries")
        if fields.level is None:
            raise InputError("level", "none", "a number in a run with canaries")
        draws = generator(seed("audit", use="canary", base=fields.seed))
        included = draws.integers(0, 2, count).astype(bool)
        first = len(data.x_train)
        empty = frozenset((first + np.flatnonzero(~included)).tolist())
        x, labels = side_door_canaries(data.x_train.shape[1:], count, len(data.classes))
        return cls(x, labels, included, empty)

    def network(self, network: nn.Module, data: Prepared) -> SideDoor:
        """The network with an input per canary."""
        return SideDoor(network, data.x_train.shape[1:], len(self.x), len(data.classes))

    def records(self, x: torch.Tensor) -> torch.Tensor:
        """Records of the data set, for that network."""
        return side_door_records(x, len(self.x))

    def scores(self, network: nn.Module) -> np.ndarray:
        """The attacker's scores from the trained network, (canaries,)."""
        device = next(network.parameters()).device
        return side_door_scores(network, self.x.to(device), self.labels.to(device))


def verdict(
    scores: np.ndarray, included: np.ndarray, phase: Phase, fields: TrainingSpec
) -> dict[str, Any]:
    """What the canaries' scores show of epsilon, and whether they contradict the guarantee.

    The guarantee is the accountant's whole profile. Both statements have confidence `level`.
    """
    assert fields.level is not None
    epsilons = [guarantee([phase], delta, fields.relation).epsilon for delta in PROFILE_DELTAS]
    lower = one_run_lower_bound(scores, included, fields.delta, fields.level)
    test = one_run_profile_test(scores, included, epsilons, PROFILE_DELTAS, fields.level)
    return {
        "auc": auc(scores, included),
        "lower": asdict(lower),
        "profile_test": asdict(test),
        "contradicted": test.rejected,
    }


def auc(scores: np.ndarray, included: np.ndarray) -> float | None:
    """Probability that an included canary scores above another; None without one of either kind."""
    ahead = scores[included][:, None] - scores[~included]
    return float(((ahead > 0) + 0.5 * (ahead == 0)).mean()) if ahead.size else None
