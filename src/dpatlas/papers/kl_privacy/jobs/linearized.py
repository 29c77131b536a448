"""kl_privacy: the network linearised at its initialisation (Sec. 6), at a fixed KL budget."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise, generator, seed
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.mlp import initial_weights, output_jacobian_gram
from dpatlas.papers.kl_privacy.formulas.theorems import (
    excess_risk_time,
    gradient_norm_constant,
    kl_linearized,
    kl_step,
    neighbour_gap,
)
from dpatlas.papers.kl_privacy.jobs.ledger import CONVENTION, LEDGER
from dpatlas.papers.kl_privacy.records.linearized import AtDepth, Metrics, Spec, Sphere

SPHERE_RECORDS = 16
# At most so many steps are recorded, evenly spaced in log(step).
SHOWN_STEPS = 50
# A solution with a larger relative residual counts as none: the matrix is singular.
LARGEST_RESIDUAL = 1e-6


def linearized(job: Job) -> Outcome:
    """Langevin training of the linearised one-output network at a fixed KL budget, every depth.

    The outputs on all records follow a closed recursion: f <- f - eta K l'/n + N(0, 2 eta sigma^2
    K), K the NTK matrix at initialisation, so the network is trained exactly without its
    parameters. T and sigma^2 are those of Cor. 6.4 (exact convention), with R measured.
    """
    fields: Spec = job.fields
    data, n = job.prepared, fields.n_train
    if n > len(data.x_train):
        raise InputError("kl_privacy.linearized.n_train", n, f"at most {len(data.x_train)} records")
    # As many records to add as there are to remove: the work grows with the cube of both.
    x = np.concatenate([data.x_train[:n], data.x_add[:n]]).astype(np.float64)
    labels = np.concatenate([data.y_train[:n], data.y_add[:n]])
    noise = Noise(job.spec.digest, fields.noise_source)
    with Progress(len(fields.depths) * fields.runs, job.spec.id) as progress:
        rows = [at_depth(fields, depth, x, labels, noise, progress) for depth in fields.depths]
    ledger = {
        **LEDGER,
        "steps": [row.steps for row in rows],
        "noise_multiplier": None,
        "claimed": "Cor. 4.2 under the mean over initialisations; R was measured on the data",
        "chosen_on_private_data": "T and sigma, through the measured R (unaccounted)",
    }
    return Outcome(
        Metrics(n_train=n, n_add=len(x) - n, epsilon=fields.epsilon, depths=rows), ledger
    )


def at_depth(
    fields: Spec, depth: int, x: np.ndarray, labels: np.ndarray, noise: Noise, progress: Progress
) -> AtDepth:
    """Constants, then training over runs, at one depth; `progress` counts runs.

    x (records, d) and labels in {0, 1}: first the training records, then those to add.
    """
    d, n = x.shape[1], fields.n_train
    sign = 2.0 * labels - 1
    bound = float(gradient_norm_constant(fields.init, d, fields.width, depth, 1))
    sphere, sphere_sign = _sphere(d, fields.seed)
    starts, distances, sphere_distances = [], [], []
    for run in range(fields.runs):
        weights = _weights(fields, d, depth, run)
        start = _linearize(weights, x)
        starts.append(start)
        distances.append(lazy_training_distance(start.output[:n], start.gram[:n, :n], sign[:n]))
        on_sphere = _linearize(weights, sphere)
        sphere_distances.append(
            lazy_training_distance(on_sphere.output, on_sphere.gram, sphere_sign)
        )
    # T of Cor. 6.4 with the measured R, and the noise whose KL after time T is the budget.
    time = float(excess_risk_time(bound, float(np.mean(distances)), n, fields.epsilon))
    sigma2 = float(bound * time / (fields.epsilon * n**2))
    # The loss is 1/4-smooth in the outputs; half of the stable step keeps the discretisation small.
    sharpest = max(float(np.linalg.eigvalsh(start.gram[:n, :n])[-1]) for start in starts) / (4 * n)
    steps = max(fields.min_steps, int(np.ceil(time * sharpest)))
    eta = time / steps
    trained = []
    for run, start in enumerate(starts):
        draw = _correlated_normals(noise, start.gram, run, depth)
        trained.append(langevin(start, sign, n, eta, sigma2, steps, draw))
        progress.advance(f"depth {depth}")
    kl = np.stack([run.kl for run in trained])
    shown = np.unique(np.geomspace(1, steps, SHOWN_STEPS).astype(int))
    worst = kl.mean(0).argmax(1)
    return AtDepth(
        depth=depth,
        B=bound,
        B_runs=[float(np.diag(start.gram).mean()) for start in starts],
        R_runs=distances,
        BR_over_n_runs=[bound * distance / n for distance in distances],
        sphere=Sphere(
            records=SPHERE_RECORDS,
            R_runs=sphere_distances,
            BR_over_n_runs=[bound * distance / SPHERE_RECORDS for distance in sphere_distances],
        ),
        T=time,
        sigma2=sigma2,
        eta=eta,
        steps=steps,
        shown_steps=shown.tolist(),
        kl_worst_runs=kl[:, shown - 1, worst[shown - 1]].T.tolist(),
        kl_bound=[
            float(kl_linearized(bound, time * step / steps, n, sigma2, CONVENTION))
            for step in shown
        ],
        excess_risk_runs=[run.excess_risk for run in trained],
        initial_risk_runs=[run.initial_risk for run in trained],
    )


class Linearization(NamedTuple):
    """A one-output network to first order: outputs (records,) and NTK matrix (records, records)."""

    output: np.ndarray
    gram: np.ndarray


def _weights(fields: Spec, d: int, depth: int, run: int) -> list[torch.Tensor]:
    """Initial weights of one run in double precision."""
    weights = initial_weights(
        fields.init, d, fields.width, depth, 1, key=fields.key, run=run, base_seed=fields.seed
    )
    return [torch.from_numpy(weight).double() for weight in weights]


def _linearize(weights: list[torch.Tensor], x: np.ndarray) -> Linearization:
    output, gram = output_jacobian_gram(weights, torch.from_numpy(x))
    return Linearization(output.numpy(), gram.numpy())


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
            "(linearized.n_train) than the network has weights (linearized.width)",
        )
    return float(target @ solution)


def _sphere(d: int, base_seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records as the theory assumes them: uniform on ||x||^2 = d, with random labels."""
    draws = generator(seed("kl_privacy", use="sphere", base=base_seed, d=d))
    x = draws.standard_normal((SPHERE_RECORDS, d))
    x *= np.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)
    return x, draws.choice([-1.0, 1.0], SPHERE_RECORDS)


def _correlated_normals(
    noise: Noise, gram: np.ndarray, run: int, depth: int
) -> Callable[[int], np.ndarray]:
    """The function from a step to its draw of N(0, gram)."""
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(values.clip(0))

    def draw(step: int) -> np.ndarray:
        return root @ noise.normal(len(gram), repetition=run, step=step, use=f"depth {depth}")

    return draw


class Trained(NamedTuple):
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
) -> Trained:
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
    return Trained(
        kl,
        excess_risk=float(np.logaddexp(0, -sign[:n] * average).mean()),
        initial_risk=float(np.logaddexp(0, -sign[:n] * start.output[:n]).mean()),
    )


KIND = Kind(linearized, spec=Spec, packages=("torch", "numpy"))
