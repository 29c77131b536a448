"""kl_privacy: the network linearised at its initialisation (Sec. 6), at a fixed KL budget."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from dpatlas.base.progress import Progress
from dpatlas.base.records import Row, rows_of
from dpatlas.base.seeds import Noise, generator, seed
from dpatlas.errors import InputError
from dpatlas.formulas.kl_privacy.theorems import (
    excess_risk_time,
    gradient_norm_constant,
    kl_linearized,
    kl_step,
    neighbour_gap,
)
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.mlp import initial_weights, output_jacobian_gram
from dpatlas_workflow.papers.kl_privacy.jobs.ledger import CONVENTION, LEDGER, check_watched
from dpatlas_workflow.papers.kl_privacy.records.linearized import RECORD, LinearizedSpec
from dpatlas_workflow.run.deals import Deals, Dealt

SPHERE_RECORDS = 16
# Shares of the training time at which KL is kept, in percent; steps are a multiple of 100.
SHARES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)
# A solution with a larger relative residual counts as none: the matrix is singular.
LARGEST_RESIDUAL = 1e-6


def linearized(job: Job) -> Outcome:
    """Langevin training of the linearised one-output network at a fixed KL budget, every depth.

    The outputs on all records follow a closed recursion: f <- f - eta K l'/n + N(0, 2 eta sigma^2
    K), K the NTK matrix at initialisation, so the network is trained exactly without its
    parameters. T and sigma^2 are those of Cor. 6.4 (exact convention), with the run's own R: their
    ratio, on which Cor. 4.2 depends, is the same in all runs.
    """
    fields: LinearizedSpec = job.fields
    deals, noise = Deals(job, ("train", "add")), Noise(job.spec.digest, fields.noise_source)
    if fields.n_train > deals.sizes["train"]:
        allowed = f"at most {deals.sizes['train']} records"
        raise InputError("kl_privacy.linearized.n_train", fields.n_train, allowed)
    check_watched(fields.watched, deals)
    depths: list[Row] = []
    shares: list[Row] = []
    widths: list[Row] = []
    with Progress(len(fields.depths) * fields.runs, job.spec.id) as progress:
        for run in fields.run_numbers:
            records = LinearizedRecords.of(deals.of(run), fields, run)
            widths += [at_width(fields, width, records) for width in fields.widths]
            for depth in fields.depths:
                row, along = at_depth(fields, depth, records, noise)
                depths.append(row)
                shares += along
                progress.advance(f"run {run}, depth {depth}")
    ledger = {
        **LEDGER,
        "noise_multiplier": None,
        "claimed": "Cor. 4.2 under the mean over initialisations; R was measured on the data",
        "chosen_on_private_data": "T and sigma, through the measured R (unaccounted)",
    }
    facts = {
        "n_train": fields.n_train,
        "n_add": len(records.x) - fields.n_train,
        "sphere_records": SPHERE_RECORDS,
    }
    return Outcome({**facts, "depths": depths, "shares": shares, "widths": widths}, ledger)


@dataclass(frozen=True)
class LinearizedRecords:
    """What one run sees: records to train on, then records to add, and inputs on a sphere.

    x (records, d) float64; sign: labels -1, +1; watched: position of the watched record.
    """

    run: int
    n_train: int
    x: np.ndarray
    sign: np.ndarray
    watched: int
    sphere: np.ndarray
    sphere_sign: np.ndarray

    @classmethod
    def of(cls, dealt: Dealt, fields: LinearizedSpec, run: int) -> "LinearizedRecords":
        """The first `n_train` records of either part; the watched one in place of the first."""
        n = fields.n_train
        positions, x, labels = (
            np.concatenate([of_part["train"][:n], of_part["add"][:n]])
            for of_part in (dealt.positions, dealt.x, dealt.labels)
        )
        if fields.watched not in positions:
            for part, places in dealt.positions.items():
                for place in np.flatnonzero(places == fields.watched):
                    positions[0] = fields.watched
                    x[0], labels[0] = dealt.x[part][place], dealt.labels[part][place]
        (watched,) = np.flatnonzero(positions == fields.watched)
        sphere, sphere_sign = _sphere(x.shape[1], fields.seed, run)
        sign = 2.0 * labels - 1
        return cls(run, n, x.astype(np.float64), sign, int(watched), sphere, sphere_sign)


def at_width(fields: LinearizedSpec, width: int, records: LinearizedRecords) -> Row:
    """R of one run's network of this width: a row of `widths`."""
    n = records.n_train
    weights, bound = _network(fields, records, width, fields.width_depth)
    start = _linearize(weights, records.x[:n])
    on_data = distances(start, records.sign[:n], bound)
    on_sphere = _on_the_sphere(weights, records, bound)
    return {"run": records.run, "width": width, "B": bound, **on_data, **on_sphere}


def at_depth(
    fields: LinearizedSpec, depth: int, records: LinearizedRecords, noise: Noise
) -> tuple[Row, list[Row]]:
    """One run at one depth: constants, then training at the budget, and at the fixed noise.

    The row of `depths`, and those of `shares`.
    """
    n = fields.n_train
    weights, bound = _network(fields, records, fields.width, depth)
    start = _linearize(weights, records.x)
    trained_on = Linearization(start.output[:n], start.gram[:n, :n])
    on_data = distances(trained_on, records.sign[:n], bound)
    # T of Cor. 6.4 with the measured R, and the noise whose KL after time T is the budget.
    time = float(excess_risk_time(bound, on_data["R"], n, fields.epsilon))
    sigma2 = float(kl_linearized(bound, time, n, 1.0, CONVENTION)) / fields.epsilon
    # The loss is 1/4-smooth in the outputs; half of the stable step keeps the discretisation small.
    sharpest = float(np.linalg.eigvalsh(trained_on.gram)[-1]) / (4 * n)
    values, vectors = np.linalg.eigh(start.gram)
    root = vectors * np.sqrt(values.clip(0))

    def train(time: float, sigma2: float, use: str) -> LinearizedRun:
        use = f"{use} depth {depth}"

        def draw(step: int) -> np.ndarray:
            return root @ noise.normal(len(root), repetition=records.run, step=step, use=use)

        steps = 100 * math.ceil(max(fields.min_steps, time * sharpest) / 100)
        return langevin(start, records.sign, n, time / steps, sigma2, steps, draw)

    trained = train(time, sigma2, "budget")
    shown = np.array(SHARES) * len(trained.kl) // 100 - 1
    fixed = train(fields.time, fields.sigma**2, "fixed noise")
    at = {"run": records.run, "depth": depth}
    row = {
        **at,
        "B": bound,
        "B_run": float(np.diag(start.gram).mean()),
        **on_data,
        **_on_the_sphere(weights, records, bound),
        "T": time,
        "excess_risk": trained.excess_risk,
        "initial_risk": trained.initial_risk,
        "kl_fixed": float(fixed.kl[-1].max()),
    }
    along = rows_of(
        {"share": [share / 100 for share in SHARES]},
        kl_max=trained.kl[shown].max(1),
        kl_watched=trained.kl[shown, records.watched],
    )
    return row, [at | share for share in along]


class Linearization(NamedTuple):
    """A one-output network to first order: outputs (records,) and NTK matrix (records, records)."""

    output: np.ndarray
    gram: np.ndarray


def _network(
    fields: LinearizedSpec, records: LinearizedRecords, width: int, depth: int
) -> tuple[list[torch.Tensor], float]:
    """Initial weights of one run's network with one output, in double precision, and its B."""
    shape = (fields.init, records.x.shape[1], width, depth, 1)
    weights = initial_weights(*shape, key=fields.key, run=records.run, base_seed=fields.seed)
    doubles = [torch.from_numpy(weight).double() for weight in weights]
    return doubles, float(gradient_norm_constant(*shape))


def _linearize(weights: list[torch.Tensor], x: np.ndarray) -> Linearization:
    output, gram = output_jacobian_gram(weights, torch.from_numpy(x))
    return Linearization(output.numpy(), gram.numpy())


def distances(start: Linearization, sign: np.ndarray, bound: float) -> dict[str, float]:
    """R of one run on the records of `start`, and B R / n for this B."""
    n, distance = len(sign), lazy_training_distance(start.output, start.gram, sign)
    return {"R": distance, "BR_over_n": bound * distance / n}


def _on_the_sphere(
    weights: list[torch.Tensor], records: LinearizedRecords, bound: float
) -> dict[str, float]:
    found = distances(_linearize(weights, records.sphere), records.sphere_sign, bound)
    return {f"{name}_sphere": value for name, value in found.items()}


def lazy_training_distance(output: np.ndarray, gram: np.ndarray, sign: np.ndarray) -> float:
    """R = ||W - W_0||^2 for the near-optimal W of Lemma 6.3's proof: outputs y_i 2 ln n.

    `output` (n,) at initialisation, `gram` (n, n) the NTK matrix, `sign` (n,) labels -1, +1.
    Raises InputError for a singular matrix, as records that are the same give it: no W has those
    outputs.
    """
    target = 2 * np.log(len(sign)) * sign - output
    try:
        solution = np.linalg.solve(gram, target)
    except np.linalg.LinAlgError:
        solution = np.full_like(target, np.nan)
    # Rounding can hide that a matrix is singular; what the solver returns is then no solution.
    residual = np.linalg.norm(gram @ solution - target)
    if not residual <= LARGEST_RESIDUAL * np.linalg.norm(target):
        raise InputError(
            "kl_privacy.data",
            f"{len(sign)} records whose NTK matrix is singular",
            "records that differ in more than their scale, and fewer of them "
            "(linearized.n_train) than the smallest network has weights (linearized.width, widths)",
        )
    return float(target @ solution)


def _sphere(d: int, base_seed: int, run: int) -> tuple[np.ndarray, np.ndarray]:
    """Records as the theory assumes them: uniform on ||x||^2 = d, with random labels."""
    draws = generator(seed("kl_privacy", use="sphere", base=base_seed, d=d, run=run))
    x = draws.standard_normal((SPHERE_RECORDS, d))
    x *= np.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)
    return x, draws.choice([-1.0, 1.0], SPHERE_RECORDS)


class LinearizedRun(NamedTuple):
    """A run's cumulative KL (steps, records), and mean logistic losses on the training records.

    excess_risk: of the averaged outputs; initial_risk: at the start.
    """

    kl: np.ndarray
    excess_risk: float
    initial_risk: float


def langevin(
    start: Linearization,
    sign: np.ndarray,
    n: int,
    eta: float,
    sigma2: float,
    steps: int,
    draw: Callable[[int], np.ndarray],
) -> LinearizedRun:
    """Train in function space.

    sign: labels -1, +1; the first `n` records are trained on. draw: the function from a step to its
    draw of N(0, gram). The minimum of the empirical risk is 0 (the NTK matrix has full rank), so
    the risk of the averaged outputs is the excess risk.
    """
    gram, f = start.gram, start.output.copy()
    average = np.zeros(n)
    kl = np.zeros((steps, len(f)))
    diagonal = np.diag(gram)
    for step in range(steps):
        average += f[:n] / steps
        # The loss's derivative -y / (1 + e^{y f}) in the output, by tanh without overflow.
        slope = -sign * (1 - np.tanh(sign * f / 2)) / 2
        pull = gram[:, :n] @ slope[:n] / n
        g_norm2 = slope**2 * diagonal
        inner = slope * pull
        gbar_norm2 = slope[:n] @ pull[:n] / n
        gaps = np.concatenate(
            [
                neighbour_gap("remove", n, g_norm2[:n], gbar_norm2, inner[:n]),
                neighbour_gap("add", n, g_norm2[n:], gbar_norm2, inner[n:]),
            ]
        ).clip(0)
        kl[step] = kl_step(eta, sigma2, gaps, CONVENTION) + (kl[step - 1] if step else 0)
        f = f - eta * pull + np.sqrt(2 * eta * sigma2) * draw(step)
    return LinearizedRun(
        kl,
        excess_risk=float(np.logaddexp(0, -sign[:n] * average).mean()),
        initial_risk=float(np.logaddexp(0, -sign[:n] * start.output[:n]).mean()),
    )


KIND = Kind(linearized, record=RECORD, packages=("torch", "numpy"))
