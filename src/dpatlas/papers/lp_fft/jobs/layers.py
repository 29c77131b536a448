"""lp_fft's layers of a linear net: their sensitivities (Fig. 9) and their imbalance (Fig. 10)."""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from dpatlas.core.guard import integer, one_of, real
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import generator, seed
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job
from dpatlas.papers.lp_fft.formulas.imbalance import (
    NOISES,
    imbalance_drift,
    imbalance_eigenvalues,
    imbalance_matrix,
    jensen_gap,
)
from dpatlas.papers.lp_fft.jobs.linear import (
    LinearProblem,
    fine_tuning,
    linear_problem,
    step_deviations,
)

LEDGER = {"mechanism": "none: nothing is trained on data and nothing of any data is released"}
# Prop. E.10 prints v_0 ~ N(0, beta I) with beta = h / sqrt(d): the variance, or the deviation.
READINGS = ("variance", "deviation")
State = tuple[np.ndarray, np.ndarray]


def sensitivity(job: Job) -> dict[str, Any]:
    """Fig. 9: gradient sizes of both layers against d at the start, and their ratio in DP-GD.

    `start`: for every d and reading of Prop. E.10, means over heads and features of the largest
    gradient norm over the records, of either layer, and over all records of norm and label at most
    one; and of the ratio head over features, with standard errors. `drift`: the ratio after every
    `every` steps, for every kind of noise.
    """
    fields = job.spec.fields
    start, drift = fields["start"], fields["drift"]
    metrics: dict[str, Any] = {"start": [], "drift": []}
    with Progress(len(start["dims"]) + len(NOISES), job.spec.id) as progress:
        for d in start["dims"]:
            metrics["start"] += [_start(job, start, d, reading) for reading in READINGS]
            progress.advance(f"d = {d}")
        for noise in NOISES:
            metrics["drift"].append(_drift(job, drift, noise))
            progress.advance(noise)
    return {"metrics": metrics, "ledger": LEDGER}


def head_variance(h: int, d: int, reading: str) -> float:
    """Variance of the head's entries where h / sqrt(d) is their variance or their deviation."""
    one_of(*READINGS).check("reading", reading)
    printed = h / math.sqrt(d)
    return printed if reading == "variance" else printed**2


def record_sensitivities(
    problem: LinearProblem, v: np.ndarray, B: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Largest gradient norm of a record of the problem in head and in features, (paths,) each."""
    errors = np.abs((v[:, None, :] @ B)[:, 0] @ problem.X.T - problem.Y)
    inputs = np.linalg.norm(problem.X, axis=1)
    head = errors * np.linalg.norm(B @ problem.X.T, axis=1)
    features = errors * inputs * np.linalg.norm(v, axis=1, keepdims=True)
    return head.max(axis=1), features.max(axis=1)


def ball_sensitivities(v: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same over all records of norm and label at most one, by Lipschitz constants.

    (||B|| ||v|| + 1) times ||B||, and times ||v||, in the spectral norm; attained by features with
    orthonormal rows.
    """
    spectral, head = np.linalg.norm(B, 2, axis=(1, 2)), np.linalg.norm(v, axis=1)
    error = spectral * head + 1
    return error * spectral, error * head


def _start(job: Job, fields: Mapping[str, Any], d: int, reading: str) -> dict[str, Any]:
    """Sensitivities before training, over heads and features; the records are drawn once."""
    keys = {"base": job.spec.fields["seed"], "d": d, "reading": reading}
    rng = generator(seed(job.spec.key, use="sensitivity", **keys))
    problem, v, B = _networks(rng, fields, d, reading)
    row: dict[str, Any] = {"d": d, "h": fields["hidden"], "reading": reading}
    row |= {"head_variance": head_variance(fields["hidden"], d, reading), "seeds": len(v)}
    for name, (head, features) in (
        ("record", record_sensitivities(problem, v, B)),
        ("ball", ball_sensitivities(v, B)),
    ):
        for what, values in (("head", head), ("features", features), ("ratio", head / features)):
            row[f"{name}_{what}"], row[f"{name}_{what}_error"] = _mean(values)
    return row


def _networks(
    rng: np.random.Generator, fields: Mapping[str, Any], d: int, reading: str
) -> tuple[LinearProblem, np.ndarray, np.ndarray]:
    """Records as Prop. E.10 has them, n = `records_per_input` d; heads and orthonormal features."""
    h, count = fields["hidden"], fields["seeds"]
    integer(ge=2).check("seeds", count)
    if not 1 <= h < d:
        raise InputError("hidden", h, f"a whole number >= 1 and < d = {d}")
    n = fields["records_per_input"] * d
    integer(ge=2).check("records_per_input", fields["records_per_input"])
    problem = linear_problem(rng, n, d, h, reached=h / n, seen=d / n)
    v = math.sqrt(head_variance(h, d, reading)) * rng.standard_normal((count, h))
    B = np.linalg.qr(rng.standard_normal((count, d, h)))[0].swapaxes(1, 2)
    return problem, v, B


def _drift(job: Job, fields: Mapping[str, Any], noise: str) -> dict[str, Any]:
    """The ratio of record sensitivities during noisy gradient descent, `uniform` or `layer-wise`.

    Both kinds of noise have the same starts and the same draws.
    """
    rng = generator(seed(job.spec.key, use="sensitivity-drift", base=job.spec.fields["seed"]))
    d = fields["d"]
    problem, v, B = _networks(rng, fields, d, fields["reading"])
    states = fine_tuning(
        v,
        B,
        problem.residual,
        step=fields["step"],
        deviations=step_deviations(noise, fields["sigma2"], fields["step"], d),
        steps=fields["steps"],
        rng=rng,
    )
    found = {name: [] for name in ("steps", "ratio", "error")}
    for place, (head, features) in _every(states, (v, B), fields):
        above, below = record_sensitivities(problem, head, features)
        mean, error = _mean(above / below)
        for name, value in (("steps", place), ("ratio", mean), ("error", error)):
            found[name].append(value)
    return {"noise": noise, "d": d, "h": fields["hidden"], "reading": fields["reading"], **found}


def imbalance(job: Job) -> dict[str, Any]:
    """Fig. 10: the gap of Jensen's inequality that Conjecture E.22 neglects; E.9's drift besides.

    `gap`: for every noise multiplier sigma, E[u] / E[sqrt u]^2 - 1 of u = max(0, -least eigenvalue
    of v v^T - B B^T), with its standard error, after every `every` steps of DP-SGD on all records.
    `drift`: how the mean eigenvalue changes under the diffusions with uniform and layer-wise noise,
    beside the lines of `imbalance_drift`.
    """
    fields = job.spec.fields
    gap, drift = fields["gap"], fields["drift"]
    metrics: dict[str, Any] = {"gap": [], "drift": []}
    with Progress(len(gap["sigmas"]) + len(NOISES), job.spec.id) as progress:
        for sigma in gap["sigmas"]:
            metrics["gap"].append(_gap(job, gap, sigma))
            progress.advance(f"sigma = {sigma:g}")
        for noise in NOISES:
            metrics["drift"].append(_mean_eigenvalue(job, drift, noise))
            progress.advance(noise)
    return {"metrics": metrics, "ledger": LEDGER}


def _gap(job: Job, fields: Mapping[str, Any], sigma: float) -> dict[str, Any]:
    """DP-SGD with full batches: clipped gradients, summed, with noise sigma times the clip norm."""
    real(gt=0).check("gap.sigmas", sigma)
    keys = {"base": job.spec.fields["seed"], "sigma": sigma}
    rng = generator(seed(job.spec.key, use="imbalance-gap", **keys))
    norm = fields["max_grad_norm"]
    problem, v, B = _paths(rng, fields)
    step = fields["lr"] / len(problem.Y)
    deviation = step * sigma * norm
    states = fine_tuning(
        v,
        B,
        partial(problem.clipped_residual, norm=norm),
        step=step,
        deviations=(deviation, deviation),
        steps=fields["steps"],
        rng=rng,
    )
    found = {name: [] for name in ("steps", "gap", "error", "eigenvalue")}
    for place, state in _every(states, (v, B), fields):
        least = imbalance_eigenvalues(*state)[:, 0]
        found["steps"].append(place)
        found["gap"].append(float(jensen_gap(least)))
        found["error"].append(_gap_error(least))
        found["eigenvalue"].append(float(least.mean()))
    return {"sigma": sigma, "paths": fields["paths"], **found}


def _gap_error(eigenvalues: np.ndarray) -> float:
    """Standard error of `jensen_gap` to first order in the two means behind it."""
    u = np.maximum(-eigenvalues, 0.0)
    root = np.sqrt(u)
    mean = root.mean()
    influence = u / mean**2 - 2 * u.mean() / mean**3 * root
    return float(influence.std(ddof=1) / math.sqrt(len(u)))


def _mean_eigenvalue(job: Job, fields: Mapping[str, Any], noise: str) -> dict[str, Any]:
    """Change of the eigenvalues' mean in time, by Euler steps, beside printed and exact lines."""
    keys = {"base": job.spec.fields["seed"], "noise": noise}
    rng = generator(seed(job.spec.key, use="imbalance-drift", **keys))
    sigma2, step, d = fields["sigma2"], fields["step"], fields["inputs"]
    problem, v, B = _paths(rng, fields)
    states = fine_tuning(
        v,
        B,
        problem.residual,
        step=step,
        deviations=step_deviations(noise, sigma2, step, d),
        steps=fields["steps"],
        rng=rng,
    )
    found = {name: [] for name in ("times", "change", "error")}
    start = _diagonal_mean(v, B)
    for place, state in _every(states, (v, B), fields):
        mean, error = _mean(_diagonal_mean(*state) - start)
        for name, value in (("times", place * step), ("change", mean), ("error", error)):
            found[name].append(value)
    times = np.array(found["times"])
    lines = {
        convention: (imbalance_drift(d, sigma2, noise, convention) * times).tolist()
        for convention in ("paper", "exact")
    }
    return {"noise": noise, **found, **lines}


def _diagonal_mean(v: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Mean of the eigenvalues of D, (paths,)."""
    return np.diagonal(imbalance_matrix(v, B), axis1=1, axis2=2).mean(axis=1)


def _paths(
    rng: np.random.Generator, fields: Mapping[str, Any]
) -> tuple[LinearProblem, np.ndarray, np.ndarray]:
    """One problem, random heads and its features on every path."""
    h, d, n, paths = (fields[name] for name in ("hidden", "inputs", "records", "paths"))
    integer(ge=2).check("paths", paths)
    problem = linear_problem(rng, n, d, h, reached=h / n, seen=d / n)
    v = math.sqrt(fields["head_variance"]) * rng.standard_normal((paths, h))
    return problem, v, np.broadcast_to(problem.B, (paths, h, d))


def _every(
    states: Iterable[State], start: State, fields: Mapping[str, Any]
) -> Iterator[tuple[int, State]]:
    """(steps taken, state) at the start and after every `every` of them."""
    yield 0, start
    for place, state in enumerate(states, 1):
        if place % fields["every"] == 0:
            yield place, state


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Mean of independent values and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
