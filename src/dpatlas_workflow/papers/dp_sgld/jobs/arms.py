"""dp_sgld: the methods that the accuracy tables compare, each with its noise and its guarantee.

All settings are public: the norm R bounds every record, so that L = sqrt(2) R and
beta = R^2 / 2 + lambda hold for every data set.

Methods are compared at equal epsilon, three times:
    published   sigma by Thm 3.2 with K = number of epochs, as for the printed values
    theorem     sigma by Thm 3.2 as stated, K = number of steps
    guaranteed  sigma by an accounting that holds, for neighbours with one record replaced

DP-SGD accounts for add_remove on Poisson batches under `published` and `theorem`, as the printed
rows do, and for replace_one under `guaranteed`.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from dpatlas.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.ledger import EVERY_ITERATE, GAUSSIAN, GIVEN_BATCHES, LastIterate, Ran
from dpatlas.accounting.samplers import Cyclic, FixedSize, FullBatch, Sampler
from dpatlas.formulas.dp_sgld.guarantees import (
    conditional_epsilon,
    cyclic_gd_gdp,
    noisy_gd_gdp_of_steps,
)
from dpatlas.formulas.dp_sgld.theorems import (
    check_step_size,
    claimed_epsilon,
    claimed_sigma2,
    lipschitz,
    radius,
    smoothness,
    step_noise_multiplier,
)
from dpatlas.privacy.langevin import Langevin, LangevinRun
from dpatlas_workflow.run.private_plan import Stated, calibrate_steps

COMPARISONS = ("published", "theorem", "guaranteed")
LANGEVIN = {
    "dp-sgld": FixedSize,
    "noisy-gd": FullBatch,
    "repaired-full": FullBatch,
    "repaired-cyclic": Cyclic,
}
# Step size of the utility theorems, in units of 1 / beta.
STEP_SIZE = 0.5
# Noise multipliers grow as step sizes decrease. Ordinary accounting counts blocks of steps, each
# with its first and smallest multiplier; within a block they grow by less than this factor.
BLOCK_GROWTH = 1.05
# Relative margin of the noise variance, so that no rounding takes epsilon above its target.
ROUNDING = 1e-12


@dataclass(frozen=True)
class RegressionProblem:
    """What is public of a data set and shared by all arms.

    There are n records of norm at most `feature_norm` in `classes` classes. step_size: eta_0 in
    units of 1 / beta. radius: of the ball around 0, None for the theorem's. accountant: of DP-SGD
    and of the ordinary accounting, as `guarantee` takes it.
    """

    n: int
    classes: int
    feature_norm: float
    delta: float
    step_size: float = STEP_SIZE
    radius: float | None = None
    accountant: str = "auto"

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant L of a record's loss."""
        return float(lipschitz(self.feature_norm))


@dataclass(frozen=True)
class LangevinPlan:
    """A Langevin arm at one point of its grid, before its noise is calibrated.

    passes: over the data, one step each for full batches. batch: ignored by full batches. updates:
    number of steps where they are no whole passes, as in a trial on fewer records.

    Raises InputError for lambda <= 0, for a batch above n and for a step size >= 1 / beta.
    """

    problem: RegressionProblem
    method: str
    comparison: str
    schedule: str
    lam: float
    passes: int
    batch: int
    updates: int | None = None

    def __post_init__(self):
        check_step_size(self.problem.step_size / self.beta, self.beta)

    @property
    def beta(self) -> float:
        """Smoothness of every record's loss."""
        return float(smoothness(self.problem.feature_norm, self.lam))

    @property
    def radius(self) -> float:
        """Radius of the ball that iterates are projected onto."""
        if self.problem.radius is not None:
            return self.problem.radius
        return float(radius(self.problem.feature_norm, self.lam, self.problem.classes))

    @functools.cached_property
    def sampler(self) -> Sampler:
        """The law of the batches."""
        kind = LANGEVIN[self.method]
        return kind(self.problem.n) if kind is FullBatch else kind(self.problem.n, self.batch)

    @functools.cached_property
    def rates(self) -> tuple[float, ...]:
        """Step sizes: constant eta_0, or eta_k = 1 / (1 / eta_0 + lambda k / 2)."""
        inverse = self.beta / self.problem.step_size
        slope = self.lam / 2 if self.schedule == "decreasing" else 0.0
        return tuple(1 / (inverse + slope * k) for k in range(self.steps))

    @property
    def steps(self) -> int:
        """Number of steps K."""
        return self.updates or self.passes * self.sampler.steps_per_epoch

    @property
    def counted_sum_of_rates(self) -> float:
        """Sum of the step sizes of the K steps that the comparison counts for Thm 3.2."""
        counted = self.passes if self.comparison == "published" else self.steps
        return float(np.sum(self.rates[:counted]))

    def on(self, n: int) -> "LangevinPlan":
        """The plan on `n` records: equal steps, and batches of the same size or of all records."""
        if n == self.problem.n:
            return self
        problem = replace(self.problem, n=n)
        return replace(self, problem=problem, batch=min(self.batch, n), updates=self.steps)

    def with_noise(self, sigma2: float) -> Langevin:
        """Settings of a run with this noise."""
        return Langevin(self.sampler, math.sqrt(sigma2), self.lam, self.radius, self.rates)

    def sigma2(self, epsilon: float) -> float:
        """Noise variance at which the arm has `epsilon` under its comparison.

        The repaired methods by Gaussian DP of the last iterate; `noisy-gd` by Thm 3.2, which holds
        for m = n; `dp-sgld` by Thm 3.2, or under `guaranteed` by the better of two accountings.
        """
        problem = self.problem
        if self.method in ("repaired-full", "repaired-cyclic"):
            ratio = self._mu(1.0, self.rates) / gaussian_mu(epsilon, problem.delta)
            return ratio**2 * (1 + ROUNDING)
        if self.method == "noisy-gd" or self.comparison != "guaranteed":
            total, lip = self.counted_sum_of_rates, problem.lipschitz
            return float(claimed_sigma2(epsilon, problem.delta, lip, self.lam, problem.n, total))
        return self._least_given_batches(epsilon, at_most=self._ordinary_sigma2(epsilon))

    def stated(self, sigma2: float) -> Stated:
        """What is claimed and what holds at this noise."""
        problem = self.problem
        claimed = None
        if self.method != "repaired-cyclic":
            total, lip = self.counted_sum_of_rates, problem.lipschitz
            claimed = float(claimed_epsilon(lip, self.lam, problem.n, sigma2, total, problem.delta))
        phases = [Phase(self.sampler, *block) for block in self._blocks(sigma2, self.rates)]
        ordinary = guarantee(phases, problem.delta, "replace_one", problem.accountant)
        least, bound = ordinary.epsilon, f"{EVERY_ITERATE}, {ordinary.accountant.upper()}"
        hidden_state = None
        if last := self._last_iterate(sigma2, self.rates):
            hidden_state = self._epsilon(last)
            if hidden_state <= least:
                least, bound = hidden_state, last.bound
        return Stated(claimed, ordinary.epsilon, hidden_state, least, "replace_one", bound)

    def ran(self, run: LangevinRun) -> Ran:
        """What a run of this plan did, its steps described as those of DP-SGD with clip bound L."""
        settings = run.settings_run
        sigma2 = settings.sigma**2
        blocks = self._blocks(sigma2, settings.rates) if sigma2 else [(0.0, settings.steps)]
        phases = tuple(Phase(settings.sampler, *block) for block in blocks)
        return Ran(
            f"Langevin SGD, {settings.sampler.name} batches, projected onto a ball",
            phases,
            (self.problem.lipschitz,) * len(phases),
            run.noise.source,
            run.shared_noise,
            last_iterate=self._last_iterate(sigma2, settings.rates) if sigma2 else None,
        )

    def _last_iterate(self, sigma2: float, rates: Sequence[float]) -> LastIterate | None:
        """The hidden-state bound after steps of these sizes; None where no bound applies."""
        if not rates:
            return None
        if self.method == "dp-sgld":
            return self._given_batches(sigma2, rates) if self.schedule == "constant" else None
        if isinstance(self.sampler, Cyclic) and len(rates) % self.sampler.steps_per_epoch:
            return None
        return LastIterate(GAUSSIAN, (self._mu(sigma2, rates),))

    def _given_batches(self, sigma2: float, rates: Sequence[float]) -> LastIterate:
        """The bound of constant steps on mini-batches, given the batches."""
        lip, n, m = self.problem.lipschitz, self.problem.n, self.sampler.batch
        setting = (lip, self.lam, self.beta, n, m, sigma2, rates[0], len(rates))
        return LastIterate(GIVEN_BATCHES, setting)

    def _epsilon(self, last: LastIterate) -> float:
        formula: Callable[..., float] = (
            gaussian_epsilon if last.bound == GAUSSIAN else conditional_epsilon
        )
        return float(formula(*last.setting, self.problem.delta))

    def _ordinary_sigma2(self, epsilon: float) -> float:
        """Noise variance at which ordinary accounting of all iterates gives `epsilon`."""
        problem, blocks = self.problem, self._blocks(1.0, self.rates)
        at_unit_noise = blocks[0][0]
        factors = tuple((multiplier / at_unit_noise, steps) for multiplier, steps in blocks)
        accounts = (problem.delta, "replace_one", problem.accountant)
        first_multiplier = calibrate_steps(self.sampler, factors, epsilon, *accounts)
        return (first_multiplier / at_unit_noise) ** 2

    def _least_given_batches(self, epsilon: float, at_most: float) -> float:
        """Noise variance by the bound given the batches, where that is below `at_most`."""

        def excess(log_sigma2: float) -> float:
            last = self._given_batches(math.exp(log_sigma2), self.rates)
            return math.log(self._epsilon(last) / epsilon)

        high = math.log(at_most)
        if self.schedule != "constant" or excess(high) >= 0:
            return at_most
        low = high - 1
        while excess(low) < 0:
            low -= 1
        root, margin = brentq(excess, low, high, xtol=1e-4), 1e-4
        while excess(root) > 0:
            root, margin = root + margin, 2 * margin
        return math.exp(root)

    def _mu(self, sigma2: float, rates: Sequence[float]) -> float:
        """Gaussian-DP parameter of the last iterate, full batch or cyclic batches."""
        sensitivity = 2 * self.problem.lipschitz / self.sampler.batch
        if isinstance(self.sampler, FullBatch):
            sizes = np.asarray(rates)
            return float(noisy_gd_gdp_of_steps(sizes, self.lam, self.beta, sensitivity, sigma2))
        batches = self.sampler.steps_per_epoch
        passes = len(rates) // batches
        mu = cyclic_gd_gdp(rates[0], self.lam, self.beta, sensitivity, sigma2, batches, passes)
        return float(mu)

    def _multipliers(self, sigma2: float, rates: Sequence[float]) -> np.ndarray:
        """Noise multiplier of every step, as DP-SGD with clip bound L would have it, (steps,)."""
        batch, lip = self.sampler.batch, self.problem.lipschitz
        return step_noise_multiplier(np.asarray(rates), sigma2, lip, batch)

    def _blocks(self, sigma2: float, rates: Sequence[float]) -> list[tuple[float, int]]:
        """(least noise multiplier, number of steps) of each block of steps, see `BLOCK_GROWTH`."""
        multipliers = self._multipliers(sigma2, rates)
        if not len(multipliers):
            return []
        if self.schedule == "constant":
            return [(float(multipliers[0]), len(multipliers))]
        grown = np.log(multipliers / multipliers[0]) // np.log(BLOCK_GROWTH)
        starts = np.flatnonzero(np.diff(grown, prepend=-1.0))
        counts = np.diff(starts, append=len(multipliers))
        return [(float(multipliers[k]), int(c)) for k, c in zip(starts, counts, strict=True)]
