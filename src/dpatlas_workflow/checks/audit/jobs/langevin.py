"""Langevin SGD, attacked through its last iterate on the neighbours that differ most in it.

One input, C classes, no bias. Every record is x = -R of class 0, except that one is x = R in D.
At weights near 0 all classes are about equally likely, a record's gradient is (1/C - onehot) x, and
replacing that record reverses its gradient, a change of

    2 R sqrt(1 - 1/C) = 0.70 (2 L) for L = sqrt(2) R and C = 100 (half of 2 L for two classes).

Strong regularisation keeps the weights near 0. Then theta_K is normal given the batches, the two
neighbours differ only along (onehot - 1/C) x, and the likelihood ratio grows with the component of
theta_K along it: that component is the score.

The claim under test is Thm 3.2 of Ryffel et al. 2022, for the last iterate and any batches.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.ledger import GAUSSIAN, LastIterate, Ran, ledger
from dpatlas.accounting.samplers import Cyclic, FixedSize, FullBatch, Sampler
from dpatlas.base.seeds import Noise
from dpatlas.formulas.dp_sgld.guarantees import cyclic_gd_gdp, noisy_gd_gdp
from dpatlas.formulas.dp_sgld.theorems import (
    claimed_epsilon_constant,
    lipschitz,
    radius,
    smoothness,
    step_noise_multiplier,
)
from dpatlas.privacy.langevin import Langevin, LangevinRun, bound_records
from dpatlas_workflow.checks.audit.mechanisms import MECHANISMS

CLASSES = 100
FEATURE_NORM, LAM = 1.0, 5.0
L = float(lipschitz(FEATURE_NORM))
BETA = float(smoothness(FEATURE_NORM, LAM))
# Length of D's differing record before it is scaled down, in units of the longest allowed.
TOO_LONG = 10.0
THEOREM = "dp_sgld Thm 3.2"


@dataclass(frozen=True)
class LangevinSGD:
    """Langevin SGD of which the last iterate is released.

    by: the theorem whose claim is tested beside the guarantee, None for no claim.

    The guarantee for batches drawn at random is ordinary accounting of all iterates; for full and
    for cyclic batches it is Gaussian DP of the last iterate (Bok, Su, Altschuler 2024).
    """

    name: str
    settings: Langevin
    by: str | None = None
    relation: ClassVar[str] = "replace_one"

    def ledger(self, delta: float, noise_source: str = "keyed") -> dict[str, Any]:
        """The ledger of one more run, with the bound for the last iterate where there is one."""
        x, labels = neighbours(self.settings.sampler.n)[0]
        noise, bounded = Noise(os.urandom(16).hex(), noise_source), bound_records(x, FEATURE_NORM).x
        run = LangevinRun(self.settings, bounded, labels, CLASSES, noise=noise, repetition=0)
        run.run()
        claimed = self.claimed([delta])
        return ledger(
            replace(self, settings=run.settings_run).ran(noise_source),
            delta=delta,
            relation=self.relation,
            constants=dict.fromkeys(("max_grad_norm", "feature_norm", "smoothness"), "public"),
            claimed=None
            if claimed is None
            else {"epsilon": claimed[0], "delta": delta, "by": self.by},
            require_private=True,
        )

    def ran(self, noise_source: str) -> Ran:
        """The ledger's facts of a run with these settings."""
        last = None if self.mu is None else LastIterate(GAUSSIAN, (self.mu,))
        return Ran(MECHANISMS[self.name], (self._phase,), (L,), noise_source, last_iterate=last)

    def profile(self, deltas: Sequence[float]) -> list[float]:
        """The guaranteed epsilon at each delta."""
        if self.mu is None:
            phases = [self._phase]
            return [guarantee(phases, delta, self.relation).epsilon for delta in deltas]
        return [gaussian_epsilon(self.mu, delta) for delta in deltas]

    def claimed(self, deltas: Sequence[float]) -> list[float] | None:
        """Thm 3.2's epsilon at each delta."""
        if self.by is None:
            return None
        n, eta, steps = self.settings.sampler.n, self.settings.rates[0], self.settings.steps
        sigma2 = self.settings.sigma**2
        return [
            float(claimed_epsilon_constant(L, LAM, BETA, n, sigma2, eta, steps, delta))
            for delta in deltas
        ]

    def scores(
        self, runs: int, noise: Noise, advance: Callable[[], None]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Components of `runs` last iterates on each of the two neighbours."""
        all_scores = []
        for world, (x, labels) in enumerate(neighbours(self.settings.sampler.n)):
            bounded = bound_records(x, FEATURE_NORM).x
            scores = np.empty(runs)
            for run in range(runs):
                repetition = 2 * run + world
                training = LangevinRun(
                    self.settings, bounded, labels, CLASSES, noise=noise, repetition=repetition
                )
                scores[run] = score(training.run())
                advance()
            all_scores.append(scores)
        return all_scores[0], all_scores[1]

    @property
    def mu(self) -> float | None:
        """Gaussian-DP parameter of the last iterate; None for batches drawn at random."""
        sampler, eta, steps = self.settings.sampler, self.settings.rates[0], self.settings.steps
        sensitivity, sigma2 = 2 * L / sampler.batch, self.settings.sigma**2
        if isinstance(sampler, FullBatch):
            return float(noisy_gd_gdp(eta, LAM, BETA, sensitivity, sigma2, steps))
        if isinstance(sampler, Cyclic):
            batches = sampler.steps_per_epoch
            epochs = steps // batches
            return float(cyclic_gd_gdp(eta, LAM, BETA, sensitivity, sigma2, batches, epochs))
        return None

    @property
    def _phase(self) -> Phase:
        """The updates as the accountants know them, the clip bound being L."""
        sampler, sigma2 = self.settings.sampler, self.settings.sigma**2
        noise = step_noise_multiplier(self.settings.rates[0], sigma2, L, sampler.batch)
        return Phase(sampler, float(noise), self.settings.steps)


def neighbours(n: int) -> list[tuple[Tensor, Tensor]]:
    """Records (n, 1) and labels (n,) of D and of D', which differ in the last record.

    That record is in the last batch of a cycle; in D it is longer than the largest allowed norm.
    """
    labels = torch.zeros(n, dtype=torch.int64)
    without = torch.full((n, 1), -FEATURE_NORM)
    with_ = without.clone()
    with_[-1] = TOO_LONG * FEATURE_NORM
    return [(with_, labels), (without, labels)]


def score(weights: Tensor) -> float:
    """Component of weights (classes, 1) in the direction in which D's last record moves them."""
    return float(weights[0, 0] - weights.mean())


def _settings(sampler: Sampler, step: float, steps: int) -> Langevin:
    """Settings with sigma = 1; `step`: the step size in units of 1 / beta."""
    ball = float(radius(FEATURE_NORM, LAM, CLASSES))
    return Langevin(sampler, 1.0, LAM, ball, (step / BETA,) * steps)


def random_batches(sampler: FixedSize, noise_multiplier: float) -> LangevinSGD:
    """DP-SGLD of one step of nearly 1 / beta, its noise in units of L / m.

    More steps show less: the claimed epsilon grows, and the effect of earlier batches decays.
    """
    unit = _settings(sampler, 0.98, 1)
    sigma = noise_multiplier / step_noise_multiplier(unit.rates[0], 1.0, L, sampler.batch)
    return LangevinSGD("dp-sgld", replace(unit, sigma=float(sigma)), THEOREM)


def _gaussian(name: str, sampler: Sampler, mu: float, by: str | None = None) -> LangevinSGD:
    """Langevin SGD of four steps of 1 / (2 beta) whose last iterate is mu-GDP."""
    unit = LangevinSGD(name, _settings(sampler, 0.5, 4), by)
    assert unit.mu is not None
    return replace(unit, settings=replace(unit.settings, sigma=unit.mu / mu))


LANGEVIN = {
    mechanism.name: mechanism
    for mechanism in (
        # On a grid of settings, m = n / 18 and this noise show best that the claim fails: one run
        # in 18 draws the differing record, which moves theta_1 by five standard deviations. In
        # simulations of this mixture the lower bound exceeds the claim in 17 % of audits of
        # 600 + 600 runs, in 98 % of 2400 + 2400, in 99 % of 3600 + 3600.
        random_batches(FixedSize(72, 4), 0.28),
        # The attack reaches 0.7 mu, and 1.4 mu under half of the noise; at this mu, 1200 + 1200
        # runs detect the latter.
        _gaussian("dp-sgld-full-batch", FullBatch(32), 1.5, THEOREM),
        _gaussian("repaired-dp-sgld-cyclic", Cyclic(32, 16), 1.5),
    )
}
