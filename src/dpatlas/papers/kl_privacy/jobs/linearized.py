"""kl_privacy: the network linearised at its initialisation (Sec. 6), and the check of B (Eq. 7)."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise, generator, seed
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, LegacyFields, legacy
from dpatlas.models.mlp import initial_weights, output_gradient_norms, output_jacobian_gram
from dpatlas.papers.kl_privacy.formulas.theorems import (
    excess_risk_time,
    gradient_norm_constant,
    kl_linearized,
    kl_step,
    neighbour_gap,
)
from dpatlas.papers.kl_privacy.jobs.ledger import CONVENTION, LEDGER

SPHERE_RECORDS = 16
# Largest error of a solution, as a share of the right side: beyond it the matrix is singular.
SOLVED = 1e-6


def linearized(job: Job) -> dict[str, Any]:
    """Langevin training of the linearised one-output network at a fixed KL budget, every depth.

    The outputs on all records follow a closed recursion: f <- f - eta K l'/n + N(0, 2 eta sigma^2
    K), K the NTK matrix at initialisation, so the network is trained exactly without its
    parameters. T and sigma^2 are those of Cor. 6.4 (exact convention), with R measured.
    """
    fields = job.spec.fields
    depths, runs = fields["depths"], fields["runs"]
    n = fields["n_train"]
    if n > len(job.data.x_train):
        raise InputError(
            "kl_privacy.linearized.n_train", n, f"at most {len(job.data.x_train)} records"
        )
    # As many records to add as there are to remove: the work grows with the cube of both.
    x = np.concatenate([job.data.x_train[:n], job.data.x_add[:n]]).astype(np.float64)
    labels = np.concatenate([job.data.y_train[:n], job.data.y_add[:n]])
    rows = []
    with Progress(len(depths) * runs, job.spec.id) as progress:
        for depth in depths:
            rows.append(_linearized_depth(job, x, labels, n, depth, progress))
    ledger = {**LEDGER, "steps": [row["steps"] for row in rows], "noise_multiplier": None}
    ledger["claimed"] = "Cor. 4.2 under the mean over initialisations; R was measured on the data"
    ledger["chosen_on_private_data"] = "T and sigma, through the measured R (unaccounted)"
    metrics = {"n_train": n, "n_add": len(x) - n, "epsilon": fields["epsilon"], "depths": rows}
    return {"metrics": metrics, "ledger": ledger}


def _linearized_depth(
    job: Job, x: np.ndarray, labels: np.ndarray, n: int, depth: int, progress: Progress
) -> dict[str, Any]:
    """One depth: constants and measured loss over runs; `progress` counts runs."""
    fields = job.spec.fields
    d, epsilon, width = x.shape[1], fields["epsilon"], fields["width"]
    sign = 2.0 * labels - 1
    bound = float(gradient_norm_constant(fields["init"], d, width, depth, 1))
    sphere, sphere_sign = _sphere(d, fields["seed"])
    starts, grams, distances, sphere_distances = [], [], [], []
    for run_index in range(fields["runs"]):
        weights = initial_weights(
            fields["init"],
            d,
            width,
            depth,
            1,
            key=job.spec.key,
            run=run_index,
            base_seed=fields["seed"],
        )
        tensors = [torch.from_numpy(weight).double() for weight in weights]
        output, gram = (part.numpy() for part in output_jacobian_gram(tensors, torch.from_numpy(x)))
        starts.append(output)
        grams.append(gram)
        distances.append(lazy_training_distance(output[:n], gram[:n, :n], sign[:n]))
        output, gram = (
            part.numpy() for part in output_jacobian_gram(tensors, torch.from_numpy(sphere))
        )
        sphere_distances.append(lazy_training_distance(output, gram, sphere_sign))
    lazy = float(np.mean(distances))
    time = float(excess_risk_time(bound, lazy, n, epsilon))
    sigma2 = float(bound * time / (epsilon * n**2))
    # The loss is 1/4-smooth in the outputs; half of the stable step keeps the discretisation small.
    sharpest = max(float(np.linalg.eigvalsh(gram[:n, :n])[-1]) for gram in grams) / (4 * n)
    steps = max(fields["min_steps"], int(np.ceil(time * sharpest)))
    outcomes = []
    noise = Noise(job.spec.digest, fields["noise_source"])
    for run_index, (output, gram) in enumerate(zip(starts, grams, strict=True)):
        draw = _correlated(noise, gram, run_index, depth)
        outcomes.append(_langevin(output, gram, sign, n, time / steps, sigma2, steps, draw))
        progress.advance(f"depth {depth}")
    kl = np.stack([outcome["kl"] for outcome in outcomes])
    shown = np.unique(np.geomspace(1, steps, 50).astype(int))
    worst = kl.mean(0).argmax(1)
    return {
        "depth": depth,
        "B": bound,
        "B_runs": [float(np.diag(gram).mean()) for gram in grams],
        "R_runs": distances,
        "BR_over_n_runs": [bound * distance / n for distance in distances],
        "sphere": {
            "records": SPHERE_RECORDS,
            "R_runs": sphere_distances,
            "BR_over_n_runs": [bound * value / SPHERE_RECORDS for value in sphere_distances],
        },
        "T": time,
        "sigma2": sigma2,
        "eta": time / steps,
        "steps": steps,
        "shown_steps": shown.tolist(),
        "kl_worst_runs": kl[:, shown - 1, worst[shown - 1]].T.tolist(),
        "kl_bound": [
            float(kl_linearized(bound, time * step / steps, n, sigma2, CONVENTION))
            for step in shown
        ],
        "excess_risk_runs": [outcome["excess"] for outcome in outcomes],
        "initial_risk_runs": [outcome["initial"] for outcome in outcomes],
    }


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
    # Rounding may hide that two rows are equal; what is found then solves nothing.
    error = np.linalg.norm(gram @ solution - target)
    if not error <= SOLVED * np.linalg.norm(target):
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


def _correlated(noise: Noise, gram: np.ndarray, run_index: int, depth: int):
    """Draws of N(0, gram), one per step."""
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(values.clip(0))

    def draw(step: int) -> np.ndarray:
        return root @ noise.normal(len(gram), repetition=run_index, step=step, use=f"depth {depth}")

    return draw


def _langevin(
    output: np.ndarray,
    gram: np.ndarray,
    sign: np.ndarray,
    n: int,
    eta: float,
    sigma2: float,
    steps: int,
    draw,
) -> dict[str, Any]:
    """Train in function space; cumulative KL (steps, records) and the averaged iterate's risk.

    The minimum of the empirical risk is 0 (the NTK matrix has full rank), so the risk of the
    averaged outputs is the excess risk.
    """
    f = output.copy()
    average = np.zeros(n)
    kl = np.zeros((steps, len(f)))
    diagonal = np.diag(gram)
    for step in range(steps):
        average += f[:n] / steps
        # -y / (1 + e^{y f}), which tanh gives without overflow.
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
    return {
        "kl": kl,
        "excess": float(np.logaddexp(0, -sign[:n] * average).mean()),
        "initial": float(np.logaddexp(0, -sign[:n] * output[:n]).mean()),
    }


def constants(job: Job) -> dict[str, Any]:
    """Monte Carlo estimate of E||grad f||_F^2 beside B (Eq. 7), every init and depth."""
    fields = job.spec.fields
    x = torch.from_numpy(job.data.x_train[:1].astype(np.float64))
    d, width, outputs, draws = x.shape[1], fields["width"], fields["outputs"], fields["draws"]
    # Eq. 7 is for ||x||^2 = d; E||grad f||^2 is proportional to ||x||^2.
    scale = d / float(x.square().sum())
    rows = []
    with Progress(len(fields["inits"]) * len(fields["depths"]), job.spec.id) as progress:
        for init in fields["inits"]:
            for depth in fields["depths"]:
                values = [
                    scale
                    * float(
                        output_gradient_norms(
                            _double_weights(job, init, d, width, depth, outputs, run), x
                        )
                    )
                    for run in range(draws)
                ]
                rows.append(
                    {
                        "init": init,
                        "depth": depth,
                        "B": float(gradient_norm_constant(init, d, width, depth, outputs)),
                        "mean": float(np.mean(values)),
                        "standard_error": float(np.std(values, ddof=1) / np.sqrt(draws)),
                        "draws": draws,
                    }
                )
                progress.advance(f"{init} depth {depth}")
    ledger = {"mechanism": "none: nothing is trained and nothing of the data is released"}
    metrics = {"inputs": d, "width": width, "outputs": outputs, "rows": rows}
    return {"metrics": metrics, "ledger": ledger}


def _double_weights(job: Job, init, d, width, depth, outputs, run) -> list[Tensor]:
    weights = initial_weights(
        init,
        d,
        width,
        depth,
        outputs,
        key=job.spec.key,
        run=run,
        base_seed=job.spec.fields["seed"],
    )
    return [torch.from_numpy(weight).double() for weight in weights]


KIND = Kind(legacy(linearized), spec=LegacyFields, packages=("torch", "numpy"))
