"""The audit of one private training by canaries.

Each canary has an input coordinate of its own (`models.side_door`), and a fair coin decides
whether it joins the training set. The attacker sees the published network alone: how much each
canary's loss falls when its coordinate is given. How many coins such an attacker guesses tests the
guaranteed privacy profile as a whole.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.accounting.audit_statistics import one_run_lower_bound
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.one_run import PROFILE_DELTAS, one_run_profile_test
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.seeds import Noise, generator, seed
from dpatlas.models.side_door import (
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


class Canaries:
    """Blank records with a private coordinate each, in slots after the training records.

    shape: of a record. records: how many there are. The coins are keyed by the base seed.
    """

    def __init__(self, number: int, shape: Sequence[int], classes: int, records: int, base: int):
        self.number, self.shape, self.classes, self.records = number, shape, classes, records
        self.x, self.labels = side_door_canaries(shape, number, classes)
        coins = generator(seed("audit", use="canary", base=base))
        self.included = coins.integers(0, 2, number).astype(bool)

    def network(self, network: nn.Module) -> SideDoor:
        """The network with an input for each canary."""
        return SideDoor(network, self.shape, self.number, self.classes)

    def inputs(self, x: Tensor) -> Tensor:
        """Records for that network."""
        return side_door_records(x, self.number)

    def added_to(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Training records and their labels and, after them, all canaries and theirs."""
        return torch.cat([self.inputs(x), self.x]), torch.cat([y, self.labels])

    def sampler(self, batch: int) -> PoissonWithEmptySlots:
        """Batches of the records and of the canaries that are in."""
        empty = frozenset((self.records + np.flatnonzero(~self.included)).tolist())
        return PoissonWithEmptySlots(self.records + self.number, batch, empty=empty)

    def scores(self, network: nn.Module) -> np.ndarray:
        """The attacker's scores from the trained network, (canaries,)."""
        device, was_training = next(network.parameters()).device, network.training
        network.eval()
        scores = side_door_scores(network, self.x.to(device), self.labels.to(device))
        network.train(was_training)
        return scores

    def verdict(
        self, scores: Sequence[float], phases: Sequence[Phase], delta: float, level: float
    ) -> dict[str, Any]:
        """What the scores show of epsilon, and whether they contradict the guarantee.

        The guarantee is the accountant's whole profile. Both statements have confidence `level`.
        """
        values = np.array(scores)
        epsilons = [guarantee(phases, each, "add_remove").epsilon for each in PROFILE_DELTAS]
        lower = one_run_lower_bound(values, self.included, delta, level)
        test = one_run_profile_test(values, self.included, epsilons, PROFILE_DELTAS, level)
        return {
            "lower": asdict(lower),
            "profile_test": asdict(test),
            "contradicted": test.rejected,
        }
