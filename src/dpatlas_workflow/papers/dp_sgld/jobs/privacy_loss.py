"""dp_sgld: epsilon against steps, claimed, guaranteed and exact; nothing is trained on data."""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import FixedSize, FullBatch, Poisson, Sampler
from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.formulas.dp_sgld.exact import CURVATURE, exact_epsilon, lipschitz_constant
from dpatlas.formulas.dp_sgld.guarantees import (
    conditional_epsilon,
    cyclic_gd_gdp,
    noisy_gd_gdp_of_steps,
)
from dpatlas.formulas.dp_sgld.published import (
    BATCH,
    DP_SGD_NOISE_MULTIPLIERS,
    PUBLISHED_RUNS,
    PublishedRun,
)
from dpatlas.formulas.dp_sgld.theorems import claimed_epsilon, claimed_sigma2, step_noise_multiplier
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs import NOTHING_RELEASED, PACKAGES
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LangevinPlan, RegressionProblem
from dpatlas_workflow.papers.dp_sgld.records.privacy_loss import RECORD, PrivacyLossSpec

REPLACE = "replace_one"
# The comparisons whose K calibrates the noise of a run.
CALIBRATIONS = ("published", "theorem")
# Steps at which curves are computed.
POINTS = 13
# The one-dimensional example: records, steps, and steps at which its curves are computed. Its
# batches are about the same share of the records as the run's.
SMALL_N, SMALL_STEPS, SMALL_POINTS = 200, 64, 10
# Epsilon that Thm 3.2 claims at its last step, whatever the run's: quadrature needs the noise.
SMALL_EPSILON = 1.0
SMALL_RADIUS, SMALL_ETA = 1.0, 0.5
SMALL_LIPSCHITZ = lipschitz_constant(SMALL_RADIUS)
# Name of an accounting, steps, and epsilon after them.
Accounting = tuple[str, Sequence[int], Iterable[float]]


@dataclass(frozen=True)
class SgldRun:
    """A run of DP-SGLD as its accountings need it; L and beta hold for every record."""

    sampler: Sampler
    lam: float
    beta: float
    L: float
    sigma2: float
    rates: np.ndarray
    delta: float


def privacy_loss(job: Job) -> Outcome:
    """Epsilon at delta against steps: claimed, guaranteed, exact; then the published settings.

    The noise is what Thm 3.2 gives for `epsilon` at the last step, with K = number of epochs
    (`published`) or of steps (`theorem`). Exact epsilon is that of a smaller, one-dimensional
    example.
    """
    fields: PrivacyLossSpec = job.fields
    problem = RegressionProblem(fields.n, fields.classes, fields.feature_norm, fields.delta)
    curves: list[Row] = []
    with Progress(len(fields.schedules) * len(CALIBRATIONS) + 2, job.spec.id) as progress:
        for schedule, calibration in product(fields.schedules, CALIBRATIONS):
            plan = LangevinPlan(
                problem, "dp-sgld", calibration, schedule, fields.lam, fields.epochs, fields.batch
            )
            of_plan = (plan.sampler, plan.lam, plan.beta, problem.lipschitz)
            sigma2, rates = plan.sigma2(fields.epsilon), np.array(plan.rates)
            run = SgldRun(*of_plan, sigma2, rates, fields.delta)
            of_run = {"calibration": calibration, "schedule": schedule, "sigma2": sigma2}
            at = log_grid(len(rates), POINTS)
            curves += curve_rows(of_run, accountings(run, at, schedule))
            progress.advance(f"{schedule} {calibration}")
        curves += small_curves(fields)
        progress.advance("one dimension")
        published = [published_accounting(run) for run in PUBLISHED_RUNS]
    facts = {
        "lipschitz": problem.lipschitz,
        "beta": plan.beta,
        "steps_per_epoch": plan.sampler.steps_per_epoch,
        "small": {
            "n": SMALL_N,
            "batch": small_batch(fields),
            "radius": SMALL_RADIUS,
            "epsilon": SMALL_EPSILON,
        },
    }
    return Outcome({**facts, "curves": curves, "published": published}, NOTHING_RELEASED)


def log_grid(last: int, points: int) -> list[int]:
    """Whole numbers from 1 to `last`, about evenly spaced on a log axis."""
    return np.unique(np.geomspace(1, last, points).round().astype(int)).tolist()


def accountings(run: SgldRun, at: Sequence[int], schedule: str) -> list[Accounting]:
    """Every accounting of one run after the steps `at`, and of full batches at the same noise."""
    full = FullBatch(run.sampler.n)
    epochs = -(-np.array(at) // run.sampler.steps_per_epoch)
    for_any_steps: list[Accounting] = [
        ("claimed, steps", at, claimed(run, at)),
        ("claimed, epochs", at, claimed(run, epochs)),
        ("every iterate", at, every_iterate(run, run.sampler, at)),
        ("full batch, every iterate", at, every_iterate(run, full, at, "pld")),
        ("full batch, every iterate, rdp", at, every_iterate(run, full, at, "rdp")),
        ("full batch, hidden state", at, hidden_state(run, at)),
    ]
    if schedule != "constant":
        return for_any_steps
    passes = np.unique(epochs[epochs * run.sampler.steps_per_epoch <= len(run.rates)])
    ends = (passes * run.sampler.steps_per_epoch).tolist()
    return [
        *for_any_steps,
        ("given the batches", at, given_batches(run, at)),
        ("cyclic, hidden state", ends, cyclic(run, passes)),
        ("quadratic, fixed start", at, quadratic(run, at, 0.0)),
        ("quadratic, random start", at, quadratic(run, at, 2 * run.sigma2 / run.lam)),
    ]


def curve_rows(of_run: Row, curves: Iterable[Accounting]) -> list[Row]:
    """The rows of a run's curves; None where epsilon is infinite."""
    return [
        {
            **of_run,
            "curve": name,
            "step": step,
            "epsilon": float(value) if math.isfinite(value) else None,
        }
        for name, steps, epsilons in curves
        for step, value in zip(steps, epsilons, strict=True)
    ]


def claimed(run: SgldRun, at: Sequence[int] | np.ndarray) -> np.ndarray:
    """What Thm 3.2 claims, whatever the batches are."""
    totals = np.cumsum(run.rates)[np.asarray(at) - 1]
    return claimed_epsilon(run.L, run.lam, run.sampler.n, run.sigma2, totals, run.delta)


def every_iterate(
    run: SgldRun, sampler: Sampler, at: Sequence[int], accountant: str = "auto"
) -> list[float]:
    """Ordinary accounting for replace_one, where every iterate may be released.

    Where step sizes decrease, those between two points count with the first, which is the largest.
    """
    phases: list[Phase] = []
    epsilons = []
    for before, after in pairwise((0, *at)):
        noise = step_noise_multiplier(run.rates[before], run.sigma2, run.L, sampler.batch)
        phase = Phase(sampler, float(noise), int(after - before))
        if phases and phases[-1].noise_multiplier == phase.noise_multiplier:
            phase = Phase(sampler, phase.noise_multiplier, phases.pop().steps + phase.steps)
        phases.append(phase)
        epsilons.append(guarantee(phases, run.delta, REPLACE, accountant).epsilon)
    return epsilons


def hidden_state(run: SgldRun, at: Sequence[int]) -> list[float]:
    """Gaussian DP of the last iterate of full batches."""
    setting = (run.lam, run.beta, 2 * run.L / run.sampler.n, run.sigma2)
    mus = [noisy_gd_gdp_of_steps(run.rates[:k], *setting) for k in at]
    return [gaussian_epsilon(float(mu), run.delta) for mu in mus]


def given_batches(run: SgldRun, at: Sequence[int]) -> list[float]:
    """The recursion of Thm 3.2's proof given the batches, for constant steps."""
    sampler = run.sampler
    setting = (run.L, run.lam, run.beta, sampler.n, sampler.batch, run.sigma2, run.rates[0])
    return [float(conditional_epsilon(*setting, k, run.delta)) for k in at]


def cyclic(run: SgldRun, passes: np.ndarray) -> list[float]:
    """Gaussian DP of the last iterate after passes over the same batches, for constant steps."""
    batch, batches = run.sampler.batch, run.sampler.steps_per_epoch
    setting = (run.rates[0], run.lam, run.beta, 2 * run.L / batch, run.sigma2)
    mus = cyclic_gd_gdp(*setting, batches, passes)
    return [gaussian_epsilon(float(mu), run.delta) for mu in mus]


def quadratic(run: SgldRun, at: Sequence[int], start_variance: float) -> list[float]:
    """Exact epsilon of full batches on (lam / 2) theta^2 - x theta, x = L against -L.

    Both laws are normal with the same variance; recursions give it and the distance of the means.
    """
    distance, variance, epsilons = 0.0, start_variance, []
    for k, eta in enumerate(run.rates, 1):
        contraction = 1 - eta * run.lam
        distance = contraction * distance + eta * 2 * run.L / run.sampler.n
        variance = contraction**2 * variance + 2 * eta * run.sigma2
        if k in at:
            epsilons.append(gaussian_epsilon(distance / math.sqrt(variance), run.delta))
    return epsilons


def small_batch(fields: PrivacyLossSpec) -> int:
    """The batch of the one-dimensional example."""
    return max(1, round(SMALL_N * fields.batch / fields.n))


def small_curves(fields: PrivacyLossSpec) -> list[Row]:
    """The one-dimensional example: exact by quadrature, x = 1 against -1, all others being -1."""
    sampler = FixedSize(SMALL_N, small_batch(fields))
    at, delta, lipschitz = log_grid(SMALL_STEPS, SMALL_POINTS), fields.delta, SMALL_LIPSCHITZ
    rates = np.full(SMALL_STEPS, SMALL_ETA)
    sigma2 = float(
        claimed_sigma2(SMALL_EPSILON, delta, lipschitz, CURVATURE, SMALL_N, sum_eta=rates.sum())
    )
    run = SgldRun(sampler, CURVATURE, CURVATURE, lipschitz, sigma2, rates, delta)
    law = {"n": SMALL_N, "m": sampler.batch, "sigma2": sigma2, "eta": SMALL_ETA}
    records = {"radius": SMALL_RADIUS, "x_prime": -1.0, "rest": -1.0}
    exact = [exact_epsilon(**law, **records, K=k, delta=delta) for k in at]
    curves: list[Accounting] = [
        ("claimed, steps", at, claimed(run, at)),
        ("every iterate", at, every_iterate(run, sampler, at)),
        ("given the batches", at, given_batches(run, at)),
        ("exact", at, exact),
    ]
    of_run = {"calibration": "one dimension", "schedule": "constant", "sigma2": sigma2}
    return curve_rows(of_run, curves)


def published_accounting(run: PublishedRun) -> Row:
    """Ordinary accounting of a published row and of the DP-SGD row beside it.

    Decreasing steps count with the first, which is the largest.
    """
    eta = run.eta or 1 / (2 * run.beta)
    noise = float(step_noise_multiplier(eta, run.sigma2, run.L, BATCH))
    replaced = guarantee([Phase(FixedSize(run.n, BATCH), noise, run.steps)], run.delta, REPLACE)
    dp_sgd_noise = DP_SGD_NOISE_MULTIPLIERS[run.dataset]
    return {
        "table": run.table,
        "dataset": run.dataset,
        "backbone": run.backbone,
        "steps": run.steps,
        "noise_multiplier": noise,
        "add_remove": poisson_epsilon(run.n, noise, run.steps, run.delta, "pld"),
        "replace_one": replaced.epsilon,
        "dp_sgd_noise_multiplier": dp_sgd_noise,
        "dp_sgd_pld": poisson_epsilon(run.n, dp_sgd_noise, run.steps, run.delta, "pld"),
        "dp_sgd_rdp": poisson_epsilon(run.n, dp_sgd_noise, run.steps, run.delta, "rdp"),
    }


@functools.cache
def poisson_epsilon(n: int, noise: float, steps: int, delta: float, accountant: str) -> float:
    """Epsilon of Poisson batches of 128 expected records, for add_remove.

    Cached, since rows of both tables share a DP-SGD run.
    """
    phases = [Phase(Poisson(n, BATCH), noise, steps)]
    return guarantee(phases, delta, "add_remove", accountant).epsilon


KIND = Kind(privacy_loss, record=RECORD, packages=PACKAGES, reads_images=False)
