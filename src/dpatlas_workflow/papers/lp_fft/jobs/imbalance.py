"""lp_fft: imbalance between the layers of a linear network (Fig. 10)."""

import math
from functools import partial
from itertools import chain

import numpy as np

from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.formulas.lp_fft.imbalance import (
    imbalance_drift,
    imbalance_eigenvalues,
    imbalance_matrix,
    jensen_gap,
)
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.lp_fft.jobs.linear import (
    LinearProblem,
    diffusion,
    fine_tuning,
    linear_problem,
)
from dpatlas_workflow.papers.lp_fft.jobs.theory import LEDGER, draws, means_with_errors
from dpatlas_workflow.papers.lp_fft.records.imbalance import (
    RECORD,
    ImbalanceDrift,
    ImbalanceGap,
    ImbalanceSpec,
)
from dpatlas_workflow.papers.lp_fft.records.theory import NOISES, LayerNoise


def imbalance(job: Job) -> Outcome:
    """The Jensen gap that Conjecture E.22 neglects, and the drift of the mean eigenvalue (E.9).

    The gap, for every noise multiplier sigma: E[u] / E[sqrt u]^2 - 1 of u = max(0, -least
    eigenvalue of v v^T - B B^T) in full-batch DP-SGD. The drift, for uniform and layer-wise noise:
    the change of the mean eigenvalue under the diffusion, and `imbalance_drift` for comparison.
    """
    fields: ImbalanceSpec = job.fields
    gap: list[Row] = []
    drift: list[Row] = []
    with Progress(len(fields.gap.sigmas) + len(NOISES), job.spec.id) as progress:
        for sigma in fields.gap.sigmas:
            gap.append(_gap(job, fields.gap, sigma))
            progress.advance(f"sigma = {sigma:g}")
        for noise in NOISES:
            drift.append(_mean_eigenvalue(job, fields.drift, noise))
            progress.advance(noise)
    return Outcome({"gap": gap, "drift": drift}, LEDGER)


def _gap(job: Job, fields: ImbalanceGap, sigma: float) -> Row:
    """The gap in full-batch DP-SGD: summed clipped gradients with noise sigma times the bound."""
    rng = draws(job, "imbalance-gap", sigma=sigma)
    problem, v, B = _paths(rng, fields)
    step = fields.lr / len(problem.Y)
    deviation = step * sigma * fields.max_grad_norm
    states = fine_tuning(
        v,
        B,
        partial(problem.clipped_residual, norm=fields.max_grad_norm),
        step=step,
        deviations=(deviation, deviation),
        steps=fields.steps,
        rng=rng,
        every=fields.every,
    )
    least = [imbalance_eigenvalues(*state)[:, 0] for state in chain([(v, B)], states)]
    return {
        "sigma": sigma,
        "paths": fields.paths,
        "steps": list(range(0, fields.steps + 1, fields.every)),
        "gap": [float(jensen_gap(each)) for each in least],
        "error": [_gap_error(each) for each in least],
        "eigenvalue": [float(each.mean()) for each in least],
    }


def _gap_error(eigenvalues: np.ndarray) -> float:
    """Standard error of `jensen_gap`, to first order in the two means that it is made of."""
    u = np.maximum(-eigenvalues, 0.0)
    root = np.sqrt(u)
    mean = root.mean()
    influence = u / mean**2 - 2 * u.mean() / mean**3 * root
    return float(influence.std(ddof=1) / math.sqrt(len(u)))


def _mean_eigenvalue(job: Job, fields: ImbalanceDrift, noise: LayerNoise) -> Row:
    """Change of the mean eigenvalue in time by Euler steps, with both formulas for it."""
    rng = draws(job, "imbalance-drift", noise=noise)
    problem, v, B = _paths(rng, fields)
    start = _diagonal_mean(v, B)
    plan = {name: getattr(fields, name) for name in ("sigma2", "step", "steps", "every")}
    states = diffusion(problem, (v, B), noise, rng, **plan)
    changes, errors = means_with_errors(_diagonal_mean(*state) - start for state in states)
    times = fields.step * np.arange(0, fields.steps + 1, fields.every)
    lines = {
        name: (imbalance_drift(fields.inputs, fields.sigma2, noise, name) * times).tolist()
        for name in ("paper", "exact")
    }
    row = {"noise": noise, "times": times.tolist(), "change": changes, "error": errors}
    return {**row, **lines}


def _diagonal_mean(v: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Mean of the eigenvalues of v v^T - B B^T, (paths,)."""
    return np.diagonal(imbalance_matrix(v, B), axis1=1, axis2=2).mean(axis=1)


def _paths(
    rng: np.random.Generator, fields: ImbalanceGap | ImbalanceDrift
) -> tuple[LinearProblem, np.ndarray, np.ndarray]:
    """One problem, with random heads and the problem's features on every path."""
    h, d, n, paths = fields.hidden, fields.inputs, fields.records, fields.paths
    problem = linear_problem(rng, n, d, h, reached=h / n, seen=d / n)
    v = math.sqrt(fields.head_variance) * rng.standard_normal((paths, h))
    return problem, v, np.broadcast_to(problem.B, (paths, h, d))


KIND = Kind(imbalance, record=RECORD, packages=("numpy", "scipy"))
