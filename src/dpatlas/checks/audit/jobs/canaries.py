"""The audit of one private training run by canaries.

Mislabelled records are offered to the training set, and a fair coin of each decides whether it
joins. How well an attacker who sees every noisy sum guesses the coins bounds epsilon from below.
"""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.checks.audit.records.bounds import Bound
from dpatlas.checks.audit.records.training import Audit, Spec
from dpatlas.core.guard import integer, real
from dpatlas.core.seeds import Noise, generator, seed
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.privacy.audit_statistics import one_run_lower_bound
from dpatlas.privacy.clipping import clip_factors
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.rules import rows_norm2
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import PrivateTraining, TrainingPhase


@dataclass(frozen=True)
class PoissonWithEmptySlots(Poisson):
    """Poisson batches of n slots, some of which hold no record.

    As the relation add_remove requires, neither the batches of the other records nor the sample
    rate nor the divisor depends on which slots are empty.
    """

    empty: frozenset[int] = frozenset()

    def batch_indices(self, noise: Noise, repetition: int, step: int) -> np.ndarray:
        """The batch without the empty slots."""
        batch = super().batch_indices(noise, repetition, step)
        return batch[[slot not in self.empty for slot in batch.tolist()]]


@dataclass(frozen=True)
class Canaries:
    """Validation images with a wrong label, in slots after the training records.

    levels: confidence of the audit's bound, and of its verdict.
    """

    x: np.ndarray
    labels: np.ndarray
    included: np.ndarray
    empty_slots: frozenset[int]
    levels: tuple[float, float]

    @classmethod
    def of(cls, data: Prepared, fields: Spec) -> "Canaries":
        """The first validation records; label and coin of each are keyed by the base seed."""
        count = fields.canaries
        integer(ge=2, le=len(data.x_validation)).check("canaries", count)
        real(gt=0, le=1 / (2 * count)).check("delta of a run with canaries", fields.delta)
        if fields.runs != 1 or fields.clipping != "flat":
            found = f"{fields.runs} runs with {fields.clipping} clipping"
            raise InputError("canaries", found, "1 run with flat clipping")
        if fields.noise_multiplier == 0:
            raise InputError("noise_multiplier", 0, "a number > 0 in a run with canaries")
        if fields.level is None or fields.verdict_level is None:
            raise InputError("level and verdict_level", "none", "both in a run with canaries")
        draws = generator(seed("audit", use="canary", base=fields.seed))
        classes = len(data.classes)
        shift = draws.integers(1, classes, count)
        labels = (data.y_validation[:count] + shift) % classes
        included = draws.integers(0, 2, count).astype(bool)
        first = len(data.x_train)
        empty = frozenset((first + np.flatnonzero(~included)).tolist())
        levels = fields.level, fields.verdict_level
        return cls(data.x_validation[:count], labels, included, empty, levels)


class CanaryAttack:
    """Estimates the coins c_j of all canaries from the noisy sums of one run.

    The attacker knows all records and weights, and everything about the canaries except the coins.
    With g_j the clipped gradient of canary j and q the sample rate, the difference of a noisy sum
    and its expectation over coins is

        r = q sum_j (c_j - 1/2) g_j + N(0, s^2),    s = noise_multiplier max_grad_norm,

    where the randomness of the batches counts as noise (at q = 1 there is none). Since a coin has
    variance 1/4, the best linear estimate of c - 1/2 is (A + 4 I)^-1 b with sums over steps
    A = sum q^2 G G^T / s^2 and b = sum q G r / s^2; row j of G is g_j. `training` is set before the
    first call of `see`.
    """

    training: PrivateTraining

    def __init__(self, model: nn.Module, canaries: Canaries, phase: TrainingPhase):
        self.model, self.phase = model, phase
        device = next(model.parameters()).device
        self.x = torch.from_numpy(canaries.x).to(device)
        self.labels = torch.from_numpy(canaries.labels).to(device)
        count = len(canaries.x)
        self.gram = torch.zeros(count, count, dtype=torch.float64)
        self.products = torch.zeros(count, dtype=torch.float64)

    def see(self, step: int, sums: dict[str, Tensor]) -> None:
        """Add one step's noisy sum to A and b."""
        training, clip = self.training, self.phase.max_grad_norm
        n = len(training.x) - len(self.x)
        base = training.kernel.clipped_sum(training.x[:n], training.labels[:n], clip)
        rows = self._clipped_gradients()
        q = self.phase.sampler.sample_rate
        differences = [(sums[name] - q * base.gradients[name]).flatten() for name in sums]
        residual = torch.cat(differences) - q / 2 * rows.sum(0)
        scale = q / (self.phase.noise_multiplier * clip)
        self.gram += scale**2 * (rows @ rows.T).double().cpu()
        self.products += scale**2 / q * (rows @ residual).double().cpu()

    def scores(self) -> np.ndarray:
        """Estimates of c - 1/2, (canaries,)."""
        prior = 4 * torch.eye(len(self.products), dtype=torch.float64)
        return torch.linalg.solve(self.gram + prior, self.products).numpy()

    def state(self) -> dict[str, np.ndarray]:
        """Arrays for a checkpoint."""
        return {"attack/gram": self.gram.numpy(), "attack/products": self.products.numpy()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from `state`."""
        self.gram = torch.from_numpy(arrays["attack/gram"].copy())
        self.products = torch.from_numpy(arrays["attack/products"].copy())

    def _clipped_gradients(self) -> Tensor:
        """One row per canary, (canaries, parameters); zeros where a gradient is not finite."""

        def loss(parameters: dict[str, Tensor], x: Tensor, label: Tensor) -> Tensor:
            output = torch.func.functional_call(self.model, parameters, (x.unsqueeze(0),))
            return cross_entropy(output, label.unsqueeze(0)).sum()

        parameters = {name: value.detach() for name, value in self.model.named_parameters()}
        by_record = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        gradients = by_record(parameters, self.x, self.labels)
        rows = torch.cat([value.flatten(1) for value in gradients.values()], 1)
        norms2 = rows_norm2(rows)
        factors = clip_factors(norms2, self.phase.max_grad_norm)
        return torch.where(norms2.isfinite()[:, None], rows * factors[:, None], 0)


def verdict(
    scores: np.ndarray, canaries: Canaries, delta: float, guaranteed: float | None
) -> Audit:
    """The bounds on epsilon that the canaries' scores prove, compared with the guaranteed one."""
    included = canaries.included
    lower, verdict_bound = (
        Bound(**asdict(one_run_lower_bound(scores, included, delta, level)))
        for level in canaries.levels
    )
    excess = None if guaranteed is None else verdict_bound.epsilon - guaranteed
    return Audit(
        canaries=len(scores),
        auc=auc(scores, included),
        lower=lower,
        verdict_bound=verdict_bound,
        excess=excess,
        contradicted=excess is not None and excess > 0,
    )


def auc(scores: np.ndarray, included: np.ndarray) -> float | None:
    """Probability that an included canary scores above another; None without one of either kind."""
    ahead = scores[included][:, None] - scores[~included]
    return float(((ahead > 0) + 0.5 * (ahead == 0)).mean()) if ahead.size else None
