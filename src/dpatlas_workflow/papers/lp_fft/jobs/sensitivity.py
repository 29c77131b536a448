"""lp_fft: gradient sensitivities of the layers of a linear network (Fig. 9)."""

import math

import numpy as np

from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.lp_fft.jobs.linear import (
    LinearProblem,
    State,
    diffusion,
    linear_problem,
)
from dpatlas_workflow.papers.lp_fft.jobs.theory import (
    LEDGER,
    draws,
    mean_with_error,
    means_with_errors,
)
from dpatlas_workflow.papers.lp_fft.records.sensitivity import (
    READINGS,
    RECORD,
    Reading,
    SensitivityDrift,
    SensitivitySpec,
    SensitivityStart,
)
from dpatlas_workflow.papers.lp_fft.records.theory import NOISES, LayerNoise


def sensitivity(job: Job) -> Outcome:
    """Sensitivities of both layers against d before training, and their ratio in DP-GD.

    Before training, for every d and reading of Prop. E.10: means over networks of each layer's
    largest gradient norm, over the problem's records and over all records of norm and label at most
    one, and of the ratio head over features. In DP-GD: the ratio, for every kind of noise.
    """
    fields: SensitivitySpec = job.fields
    start: list[Row] = []
    drift: list[Row] = []
    with Progress(len(fields.start.dims) + len(NOISES), job.spec.id) as progress:
        for d in fields.start.dims:
            start += [_start(job, fields.start, d, reading) for reading in READINGS]
            progress.advance(f"d = {d}")
        for noise in NOISES:
            drift.append(_drift(job, fields.drift, noise))
            progress.advance(noise)
    return Outcome({"start": start, "drift": drift}, LEDGER)


def head_variance(h: int, d: int, reading: Reading) -> float:
    """Variance of the head's entries if the printed h / sqrt(d) is what `reading` says."""
    printed = h / math.sqrt(d)
    return printed if reading == "variance" else printed**2


def record_sensitivities(
    problem: LinearProblem, v: np.ndarray, B: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Largest gradient norm over the problem's records, of head and of features, (paths,) each."""
    errors = np.abs(problem.errors(v, B))
    inputs = np.linalg.norm(problem.X, axis=1)
    head = errors * np.linalg.norm(B @ problem.X.T, axis=1)
    features = errors * inputs * np.linalg.norm(v, axis=1, keepdims=True)
    return head.max(axis=1), features.max(axis=1)


def ball_sensitivities(v: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Largest gradient norms over all records of norm and label at most one, (paths,) each.

    Bounds (||B|| ||v|| + 1) ||B|| and (||B|| ||v|| + 1) ||v|| in the spectral norm of B, attained
    if the rows of B are orthonormal.
    """
    spectral, head = np.linalg.norm(B, 2, axis=(1, 2)), np.linalg.norm(v, axis=1)
    error = spectral * head + 1
    return error * spectral, error * head


def _start(job: Job, fields: SensitivityStart, d: int, reading: Reading) -> Row:
    """Means over networks of the sensitivities before training; records are drawn once."""
    rng = draws(job, "sensitivity", d=d, reading=reading)
    problem, v, B = _networks(rng, fields, d, reading)
    columns: dict[str, float] = {}
    for name, (head, features) in (
        ("record", record_sensitivities(problem, v, B)),
        ("ball", ball_sensitivities(v, B)),
    ):
        samples = {"head": head, "features": features, "ratio": head / features}
        for quantity, values in samples.items():
            column = f"{name}_{quantity}"
            columns[column], columns[f"{column}_error"] = mean_with_error(values)
    return {
        "d": d,
        "h": fields.hidden,
        "reading": reading,
        "head_variance": head_variance(fields.hidden, d, reading),
        "seeds": len(v),
        **columns,
    }


def _networks(
    rng: np.random.Generator, fields: SensitivityStart | SensitivityDrift, d: int, reading: Reading
) -> tuple[LinearProblem, np.ndarray, np.ndarray]:
    """Records as in Prop. E.10, n = `records_per_input` d; heads and orthonormal features."""
    h, count, n = fields.hidden, fields.seeds, fields.records_per_input * d
    problem = linear_problem(rng, n, d, h, reached=h / n, seen=d / n)
    v = math.sqrt(head_variance(h, d, reading)) * rng.standard_normal((count, h))
    B = np.linalg.qr(rng.standard_normal((count, d, h)))[0].swapaxes(1, 2)
    return problem, v, B


def _drift(job: Job, fields: SensitivityDrift, noise: LayerNoise) -> Row:
    """The ratio of record sensitivities during noisy gradient descent.

    Both kinds of noise use the same initial networks and the same random numbers.
    """
    rng = draws(job, "sensitivity-drift")
    problem, v, B = _networks(rng, fields, fields.d, fields.reading)

    def ratio(state: State) -> np.ndarray:
        head, features = record_sensitivities(problem, *state)
        return head / features

    plan = {name: getattr(fields, name) for name in ("sigma2", "step", "steps", "every")}
    ratios, errors = means_with_errors(map(ratio, diffusion(problem, (v, B), noise, rng, **plan)))
    row = {"noise": noise, "d": fields.d, "h": fields.hidden, "reading": fields.reading}
    steps = list(range(0, fields.steps + 1, fields.every))
    return {**row, "steps": steps, "ratio": ratios, "error": errors}


KIND = Kind(sensitivity, record=RECORD, packages=("numpy", "scipy"))
