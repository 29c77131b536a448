"""dp_sgld: the methods that the accuracy tables compare, each with its noise and its guarantee.

All settings are public: the record norm R bounds every record, so L = sqrt(2) R and
beta = R^2 / 2 + lambda hold for every data set.

Comparisons:
    published   sigma from Thm 3.2 with K = number of epochs, as the printed values have it
    theorem     sigma from Thm 3.2 as stated, K = number of steps
    guaranteed  equal epsilon by an accounting that holds, neighbours that differ in one record

DP-SGD accounts for add_remove on Poisson batches under `published` and `theorem`, as the printed
rows do; `guaranteed` takes replace_one for every method.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from dpatlas.jobs.private_plan import Stated, calibrate_steps
from dpatlas.papers.dp_sgld.formulas.guarantees import (
    conditional_epsilon,
    cyclic_gd_gdp,
    noisy_gd_gdp_of_steps,
)
from dpatlas.papers.dp_sgld.formulas.theorems import (
    check_step_size,
    claimed_epsilon,
    claimed_sigma2,
    lipschitz,
    radius,
    smoothness,
    step_noise_multiplier,
)
from dpatlas.privacy.accounting import Phase, guarantee
from dpatlas.privacy.gaussian_dp import gaussian_epsilon, gaussian_mu
from dpatlas.privacy.langevin import Langevin, LangevinRun
from dpatlas.privacy.ledger import EVERY_ITERATE, GAUSSIAN, GIVEN_BATCHES, LastIterate, Ran
from dpatlas.privacy.samplers import Cyclic, FixedSize, FullBatch, Sampler

COMPARISONS = ("published", "theorem", "guaranteed")
LANGEVIN = {
    "dp-sgld": FixedSize,
    "noisy-gd": FullBatch,
    "repaired-full": FullBatch,
    "repaired-cyclic": Cyclic,
}
# The theorem's step size, in units of 1 / beta.
STEP_SIZE = 0.5
# How finely the ordinary accounting follows step sizes that decrease: a block of steps counts with
# its smallest noise multiplier, the first, and ends before one this much larger.
BLOCK_GROWTH = 1.05
# Added to the noise, so that no rounding takes epsilon above its target.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Problem:
    """What is public of a data set and shared by all arms.

    n records of norm at most `feature_norm` in `classes` classes; step_size: eta_0 in units of
    1 / beta; radius: of the ball around 0, None for the theorem's; accountant: of DP-SGD and of the
    ordinary accounting, as `guarantee` takes it.
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

    def warnings(self) -> list[str]:
        """What a reader must know of settings that are allowed."""
        if self.step_size <= STEP_SIZE:
            return []
        return [
            f"step size {self.step_size:g}/beta: the utility theorems cover steps up to 1/(2 beta)"
        ]


@dataclass(frozen=True)
class LangevinPlan:
    """A Langevin arm at one point of its grid, before its noise is calibrated.

    passes: epochs; a full batch makes one step of each. batch: ignored by a full batch.

    Raises InputError for lambda <= 0, for a batch above n and for a step size >= 1 / beta.
    """

    problem: Problem
    method: str
    comparison: str
    schedule: str
    lam: float
    passes: int
    batch: int

    def __post_init__(self):
        check_step_size(self.problem.step_size / self.beta, self.beta)

    @property
    def beta(self) -> float:
        """Smoothness of every record's loss."""
        return float(smoothness(self.problem.feature_norm, self.lam))

    @property
    def radius(self) -> float:
        """Of the ball that iterates are projected onto."""
        if self.problem.radius is not None:
            return self.problem.radius
        return float(radius(self.problem.feature_norm, self.lam, self.problem.classes))

    @functools.cached_property
    def sampler(self) -> Sampler:
        """Which records a step sees."""
        kind = LANGEVIN[self.method]
        return kind(self.problem.n) if kind is FullBatch else kind(self.problem.n, self.batch)

    @functools.cached_property
    def rates(self) -> tuple[float, ...]:
        """Constant eta_k, or 1 / (1 / eta_0 + lambda k / 2)."""
        inverse = self.beta / self.problem.step_size
        slope = self.lam / 2 if self.schedule == "decreasing" else 0.0
        return tuple(1 / (inverse + slope * k) for k in range(self.steps))

    @property
    def steps(self) -> int:
        """Number of steps K."""
        return self.passes * self.sampler.steps_per_epoch

    @property
    def counted_steps(self) -> int:
        """What the comparison puts into Thm 3.2 for K."""
        return self.passes if self.comparison == "published" else self.steps

    def with_noise(self, sigma2: float) -> Langevin:
        """The run's settings."""
        return Langevin(self.sampler, math.sqrt(sigma2), self.lam, self.radius, self.rates)

    def sigma2(self, epsilon: float) -> float:
        """The noise with which the arm has `epsilon` under its comparison.

        noisy-gd is calibrated by Thm 3.2, which holds for m = n, whatever the comparison.
        """
        problem = self.problem
        if self.method in ("repaired-full", "repaired-cyclic"):
            ratio = self._mu(1.0) / gaussian_mu(epsilon, problem.delta)
            return ratio**2 * (1 + ROUNDING)
        if self.method == "noisy-gd" or self.comparison != "guaranteed":
            total = float(np.sum(self.rates[: self.counted_steps]))
            lip = problem.lipschitz
            return float(claimed_sigma2(epsilon, problem.delta, lip, self.lam, problem.n, total))
        unit = self._multipliers(1.0)[0]
        first = calibrate_steps(
            self.sampler,
            tuple((multiplier / unit, steps) for multiplier, steps in self._blocks(1.0)),
            epsilon,
            problem.delta,
            "replace_one",
            problem.accountant,
        )
        ordinary = (first / unit) ** 2
        return self._less_noise(ordinary, epsilon)

    def stated(self, sigma2: float) -> Stated:
        """What is claimed and what holds at this noise."""
        problem = self.problem
        claimed = None
        if self.method != "repaired-cyclic":
            total = float(np.sum(self.rates[: self.counted_steps]))
            lip = problem.lipschitz
            claimed = float(claimed_epsilon(lip, self.lam, problem.n, sigma2, total, problem.delta))
        phases = [Phase(self.sampler, *block) for block in self._blocks(sigma2)]
        ordinary = guarantee(phases, problem.delta, "replace_one", problem.accountant)
        hidden, by = self._hidden_state(sigma2)
        if hidden is None or ordinary.epsilon < hidden:
            least, by = ordinary.epsilon, f"{EVERY_ITERATE}, {ordinary.accountant.upper()}"
        else:
            least = hidden
        return Stated(claimed, ordinary.epsilon, hidden, least, "replace_one", by)

    def ran(self, run: LangevinRun) -> Ran:
        """What a run of this plan did: its steps as DP-SGD with clip bound L would have them."""
        taken = run.settings_run
        sigma2 = taken.sigma**2
        blocks = self._blocks(sigma2, taken.rates) if sigma2 else [(0.0, taken.steps)]
        phases = tuple(Phase(taken.sampler, *block) for block in blocks)
        return Ran(
            f"Langevin SGD, {taken.sampler.name} batches, projected onto a ball",
            phases,
            (self.problem.lipschitz,) * len(phases),
            run.noise.source,
            last_iterate=self._last_iterate(sigma2, taken.rates) if sigma2 else None,
        )

    def _last_iterate(self, sigma2: float, rates: tuple[float, ...]) -> LastIterate | None:
        """The hidden-state bound after steps of these sizes; None where none applies."""
        problem, sampler = self.problem, self.sampler
        if not rates or (self.method == "dp-sgld" and self.schedule != "constant"):
            return None
        if self.method == "dp-sgld":
            constants = (problem.lipschitz, self.lam, self.beta, problem.n, sampler.batch)
            return LastIterate(GIVEN_BATCHES, (*constants, sigma2, rates[0], len(rates)))
        if isinstance(sampler, Cyclic) and len(rates) % sampler.steps_per_epoch:
            return None
        return LastIterate(GAUSSIAN, (self._mu(sigma2, rates),))

    def _hidden_state(self, sigma2: float) -> tuple[float | None, str]:
        """Epsilon of the last iterate and which bound it is; None where none applies."""
        if self.method != "dp-sgld":
            return float(gaussian_epsilon(self._mu(sigma2), self.problem.delta)), GAUSSIAN
        if self.schedule != "constant":
            return None, ""
        return self._given_batches(sigma2), GIVEN_BATCHES

    def _given_batches(self, sigma2: float) -> float:
        """Epsilon of the last iterate of mini-batches by the recursion with known batches."""
        problem = self.problem
        constants = (problem.lipschitz, self.lam, self.beta, problem.n, self.sampler.batch)
        epsilon = conditional_epsilon(*constants, sigma2, self.rates[0], self.steps, problem.delta)
        return float(epsilon)

    def _less_noise(self, sigma2: float, epsilon: float) -> float:
        """The noise by the hidden-state bound if that asks for less than `sigma2`."""

        def excess(log_sigma2: float) -> float:
            return math.log(self._given_batches(math.exp(log_sigma2)) / epsilon)

        high = math.log(sigma2)
        if self.schedule != "constant" or excess(high) >= 0:
            return sigma2
        low = high - 1
        while excess(low) < 0:
            low -= 1
        root, unit = brentq(excess, low, high, xtol=1e-4), 1e-4
        while excess(root) > 0:
            root, unit = root + unit, 2 * unit
        return math.exp(root)

    def _mu(self, sigma2: float, rates: tuple[float, ...] | None = None) -> float:
        """Gaussian-DP parameter of the last iterate, full batch or cyclic batches.

        rates: of the steps taken, None for all.
        """
        rates = self.rates if rates is None else rates
        sensitivity = 2 * self.problem.lipschitz / self.sampler.batch
        if isinstance(self.sampler, FullBatch):
            sizes = np.asarray(rates)
            return float(noisy_gd_gdp_of_steps(sizes, self.lam, self.beta, sensitivity, sigma2))
        batches = self.sampler.steps_per_epoch
        passes = len(rates) // batches
        mu = cyclic_gd_gdp(rates[0], self.lam, self.beta, sensitivity, sigma2, batches, passes)
        return float(mu)

    def _multipliers(self, sigma2: float, rates: tuple[float, ...] | None = None) -> np.ndarray:
        """Noise multiplier of every step, as DP-SGD with clip bound L would have it, (steps,)."""
        batch, lip = self.sampler.batch, self.problem.lipschitz
        sizes = np.asarray(self.rates if rates is None else rates)
        return step_noise_multiplier(sizes, sigma2, lip, batch)

    def _blocks(
        self, sigma2: float, rates: tuple[float, ...] | None = None
    ) -> list[tuple[float, int]]:
        """(least noise multiplier, steps) of stretches of the run."""
        multipliers = self._multipliers(sigma2, rates)
        if not len(multipliers):
            return []
        if self.schedule == "constant":
            return [(float(multipliers[0]), len(multipliers))]
        grown = np.log(multipliers / multipliers[0]) // np.log(BLOCK_GROWTH)
        starts = np.flatnonzero(np.diff(grown, prepend=-1.0))
        counts = np.diff(starts, append=len(multipliers))
        return [(float(multipliers[k]), int(c)) for k, c in zip(starts, counts, strict=True)]
