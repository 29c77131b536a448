"""kl_privacy: KL privacy loss of noisy gradient descent (Ye et al. 2023).

Three kinds of job, spec in, record out:

- `training`: one (init, depth, width), all runs; the cumulative KL of every record after every
  step (Theorem E.1), kept as worst case and mean; the constants that Lemma 3.2 asks for.
- `linearized`: the network linearised at its initialisation, trained by Langevin steps at a fixed
  KL budget (Cor. 6.4); B and R measured; every depth of one init.
- `constants`: Monte Carlo check of the gradient-norm constant B (Eq. 7).
"""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import itertools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.bounds.kl_privacy import (
    excess_risk_time,
    gradient_norm_constant,
    kl_linearized,
    kl_step,
    neighbour_gap,
)
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise, generator, seed
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError, run_command
from dpatlas.experiments.job import Job, job_main
from dpatlas.models.mlp import (
    initial_weights,
    output_gradient_norms,
    output_jacobian_gram,
)
from dpatlas.privacy.kl import (
    noisy_step,
    record_gaps,
    record_signals,
    signal_changes,
    squared_row_norms,
)

MODULE = "dpatlas.experiments.kl_privacy"
PACKAGES = ("torch", "numpy")
RESAMPLES = 400
INTERVAL = 0.95
PROBED_RECORDS = 256
SPHERE_RECORDS = 16
STEPS_BETWEEN_CHECKS = 20
CONVENTION = "exact"
LEDGER = {
    "mechanism": "full-batch noisy gradient descent without clipping; whole trajectory released",
    "neighbour_relation": "remove one training record, or add one of the held-out records",
    "sampler": "full batch",
    "accountant": "Theorem E.1 along our own trajectories, averaged over runs",
    "epsilon": None,
    "delta": None,
    "guaranteed": "nothing: gradients are not clipped, so no bound holds for every data set",
    "claimed": "the KL divergence at this data set, worst case over the listed neighbours",
    "clip": None,
    "chosen_on_private_data": "nothing",
    "holds_for": "secret seeds and exact arithmetic",
}


def run(job: Job) -> dict[str, Any]:
    """Metrics, seeds and ledger of the job's spec."""
    kinds = {"training": training, "linearized": linearized, "constants": constants}
    kind = job.spec.fields["kind"]
    if kind not in kinds:
        raise InputError("kind", repr(kind), "one of " + ", ".join(kinds))
    return kinds[kind](job)


def training(job: Job) -> dict[str, Any]:
    """Train every run of one condition; metrics as documented in `_summary`."""
    fields = job.spec.fields
    runs, steps = fields["runs"], fields["steps"]
    data = TrainingData.of(job.data, job.device)
    results = []
    with Progress(runs * steps, job.spec.id) as progress:
        for run_index in range(runs):
            name = f"run-{run_index}"
            stored = job.checkpoints.load(name)
            if stored is None:
                arrays = _train_one(job, data, run_index, progress)
                job.checkpoints.save(name, arrays, job.spent())
                job.checkpoints.drop("state")
            else:
                arrays, spent = stored
                job.resume(spent)
                progress.advance("(from a checkpoint)", units=steps)
            results.append(arrays)
    seeds = {
        "base": fields["seed"],
        "init": "seed(kl_privacy, use=init, base, run, layer)",
        "noise": f"{fields['noise_source']}: (spec digest, run, step, 'step')",
        "runs": runs,
    }
    ledger = {
        **LEDGER,
        "steps": steps,
        "noise_multiplier": None,
        "noise_standard_deviation_per_step": float(np.sqrt(2 * fields["lr"]) * fields["sigma"]),
        "noise_source": fields["noise_source"],
    }
    return {"metrics": _summary(fields, data, results), "seeds": seeds, "ledger": ledger}


class TrainingData:
    """Training records first, then the records to add, on the job's device."""

    def __init__(self, x: Tensor, labels: Tensor, n_train: int):
        self.x, self.labels, self.n_train = x, labels, n_train
        self.x_norm2 = squared_row_norms(x)

    @classmethod
    def of(cls, data: Prepared, device: str) -> "TrainingData":
        """Join a prepared data set's two parts."""
        x = torch.from_numpy(np.concatenate([data.x_train, data.x_add]))
        labels = torch.from_numpy(np.concatenate([data.y_train, data.y_add]))
        return cls(x.to(device), labels.to(device), len(data.x_train))


def _train_one(
    job: Job, data: TrainingData, run_index: int, progress: Progress
) -> dict[str, np.ndarray]:
    """One run: arrays kl (steps, records), loss (steps,), probe_* and grad0_norm2."""
    fields = job.spec.fields
    steps, eta, sigma = fields["steps"], fields["lr"], fields["sigma"]
    d = data.x.shape[1]
    noise = Noise(job.spec.digest, fields["noise_source"])
    weights = [
        torch.from_numpy(weight).to(job.device)
        for weight in initial_weights(
            fields["init"],
            d,
            fields["width"],
            fields["depth"],
            fields["outputs"],
            key=job.spec.key,
            run=run_index,
            base_seed=fields["seed"],
        )
    ]
    probe = SmoothnessProbe(weights, data, steps)
    size = sum(weight.numel() for weight in weights)
    kl = torch.zeros(steps, len(data.x), dtype=torch.float64, device=job.device)
    loss = torch.zeros(steps, dtype=torch.float64, device=job.device)
    grad_norm2 = torch.zeros(steps, dtype=torch.float64, device=job.device)
    start = _restore(job, run_index, weights, kl, loss, grad_norm2, probe, progress)
    for step in range(start, steps):
        if job.save_due():
            _save(job, run_index, step, weights, kl, loss, grad_norm2, probe)
        probe.look(step, weights)
        gaps = record_gaps(weights, data.x, data.labels, data.n_train, data.x_norm2)
        paid = kl_step(eta, sigma**2, gaps.squared_gaps("remove_add"), CONVENTION)
        kl[step] = paid if step == 0 else kl[step - 1] + paid
        loss[step] = gaps.losses[: data.n_train].mean(dtype=torch.float64)
        grad_norm2[step] = gaps.gbar_norm2
        draws = noise_draws(noise, size, run_index, step, job.device)
        noisy_step(weights, gaps.gradient, draws, eta, sigma)
        progress.advance(f"run {run_index}")
        if step % STEPS_BETWEEN_CHECKS == 0 and not torch.isfinite(loss[step]):
            kl[step:] = torch.nan
            loss[step:] = torch.nan
            progress.advance(f"run {run_index} diverged", units=steps - step - 1)
            break
    return {
        "kl": kl.cpu().numpy(),
        "loss": loss.cpu().numpy(),
        "grad_norm2": grad_norm2.cpu().numpy(),
        **probe.arrays(),
    }


def noise_draws(noise: Noise, size: int, repetition: int, step: int, device: str) -> Tensor:
    """N(0, 1) draws of one step on `device`.

    The CPU draws from numpy's Philox, a GPU from its own counter-based generator, so both are keyed
    but differ from each other: a record says which device it ran on.
    """
    if device == "cpu":
        return torch.from_numpy(noise.normal(size, repetition=repetition, step=step, use="step"))
    draws = torch.Generator(device=device)
    draws.manual_seed(noise.key(repetition, step, "step") % 2**63)
    return torch.randn(size, generator=draws, device=device)


class SmoothnessProbe:
    """Watches how far per-record gradients move from where they started.

    At steps 1, 2, 4, ... it notes the largest ||grad l_i(W_k) - grad l_i(W_0)|| over the first
    `PROBED_RECORDS` training records, and ||W_k - W_0||: the constants c and beta of Lemma 3.2 as
    far as the trajectory shows them.
    """

    def __init__(self, weights: list[Tensor], data: TrainingData, steps: int):
        self.count = min(PROBED_RECORDS, data.n_train)
        self.x, self.labels = data.x[: self.count], data.labels[: self.count]
        self.start = [weight.clone() for weight in weights]
        self.signals = record_signals(self.start, self.x, self.labels)
        self.steps = [2**power for power in range(64) if 2**power < steps]
        self.change = np.full(len(self.steps), np.nan)
        self.distance = np.full(len(self.steps), np.nan)

    def look(self, step: int, weights: list[Tensor]) -> None:
        """Measure if `step` is one of the probed steps."""
        if step not in self.steps:
            return
        index = self.steps.index(step)
        now = record_signals(weights, self.x, self.labels)
        self.change[index] = float(signal_changes(self.signals, now).max().sqrt())
        squared = sum(
            torch.linalg.vector_norm(weight - origin, dtype=torch.float64).square()
            for weight, origin in zip(weights, self.start, strict=True)
        )
        self.distance[index] = float(squared.sqrt())

    def arrays(self) -> dict[str, np.ndarray]:
        """What was seen, for a checkpoint or a result."""
        return {"probe_change": self.change, "probe_distance": self.distance}


def _save(job: Job, run_index: int, step: int, weights, kl, loss, grad_norm2, probe) -> None:
    arrays = {f"weight_{layer}": weight.cpu().numpy() for layer, weight in enumerate(weights)}
    arrays |= {
        "kl": kl[:step].cpu().numpy(),
        "loss": loss[:step].cpu().numpy(),
        "grad_norm2": grad_norm2[:step].cpu().numpy(),
        **probe.arrays(),
    }
    job.checkpoints.save("state", arrays, {"run": run_index, "step": step, **job.spent()})


def _restore(job: Job, run_index: int, weights, kl, loss, grad_norm2, probe, progress) -> int:
    stored = job.checkpoints.load("state")
    if stored is None or stored[1]["run"] != run_index:
        return 0
    arrays, facts = stored
    step = facts["step"]
    job.resume(facts)
    for layer, weight in enumerate(weights):
        weight.copy_(torch.from_numpy(arrays[f"weight_{layer}"]))
    kl[:step] = torch.from_numpy(arrays["kl"])
    loss[:step] = torch.from_numpy(arrays["loss"])
    grad_norm2[:step] = torch.from_numpy(arrays["grad_norm2"])
    probe.change[:] = arrays["probe_change"]
    probe.distance[:] = arrays["probe_distance"]
    progress.advance("(from a checkpoint)", units=step)
    return step


def _summary(
    fields: dict[str, Any], data: TrainingData, results: list[dict[str, np.ndarray]]
) -> dict[str, Any]:
    """Metrics of a condition; lists run over steps 1..K, inner lists over runs.

    kl.worst: max over records of the mean over runs (the headline), kl.low/high its bootstrap
    interval over runs, kl.worst_runs each run's value at that record, kl.run_max each run's own
    maximum, kl.mean the mean over records and runs. Diverged runs take no part; they are named in
    `diverged` (the first bad step, else null).
    """
    steps = fields["steps"]
    diverged = [_first_bad(result["kl"]) for result in results]
    used = [result for result, bad in zip(results, diverged, strict=True) if bad is None]
    metrics = {
        "n_train": data.n_train,
        "n_add": len(data.x) - data.n_train,
        "inputs": data.x.shape[1],
        "parameters": _parameters(fields, data.x.shape[1]),
        "convention": CONVENTION,
        "diverged": diverged,
        "runs_used": len(used),
        "kl": None,
        "loss": None,
        "gradient_gap_at_start": None,
        "gradient_norm2_at_start": None,
        "probe": None,
    }
    if not used:
        return metrics
    kl = np.stack([result["kl"] for result in used])
    paid_per_gap = kl_step(fields["lr"], fields["sigma"] ** 2, 1.0, CONVENTION)
    return metrics | {
        "kl": _worst_case(kl, fields),
        "loss": {"runs": np.stack([result["loss"] for result in used]).T.tolist()},
        "gradient_gap_at_start": float(kl[:, 0].mean(0).max() / paid_per_gap),
        "gradient_norm2_at_start": float(np.mean([result["grad_norm2"][0] for result in used])),
        "probe": {
            "steps": [2**power for power in range(64) if 2**power < steps],
            "gradient_change": [result["probe_change"].tolist() for result in used],
            "distance": [result["probe_distance"].tolist() for result in used],
        },
    }


def _worst_case(kl: np.ndarray, fields: dict[str, Any]) -> dict[str, Any]:
    """Worst-case statistics of kl (runs, steps, records)."""
    runs, steps, _ = kl.shape
    mean = kl.mean(0)
    worst_record = mean.argmax(1)
    draws = generator(seed("kl_privacy", use="bootstrap", runs=runs, base=fields["seed"]))
    shares = draws.multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES) / runs
    tails = (100 * (1 - INTERVAL) / 2, 100 * (1 + INTERVAL) / 2)
    # Resample by step so that memory stays at one step's (resamples, records).
    intervals = [np.percentile((shares @ kl[:, step]).max(1), tails) for step in range(steps)]
    return {
        "worst": mean.max(1).tolist(),
        "low": [float(low) for low, _ in intervals],
        "high": [float(high) for _, high in intervals],
        "interval": f"{INTERVAL:.0%} bootstrap over runs of the maximum over records of the mean",
        "worst_record": worst_record.tolist(),
        "worst_runs": kl[:, np.arange(steps), worst_record].T.tolist(),
        "run_max": kl.max(2).T.tolist(),
        "mean": mean.mean(1).tolist(),
    }


def _first_bad(kl: np.ndarray) -> int | None:
    bad = ~np.isfinite(kl).all(1)
    return int(bad.argmax()) + 1 if bad.any() else None


def _parameters(fields: dict[str, Any], d: int) -> int:
    sizes = [d, *[fields["width"]] * (fields["depth"] - 1), fields["outputs"]]
    return sum(out * into for into, out in itertools.pairwise(sizes))


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
        raise InputError("linearized.n_train", n, f"at most {len(job.data.x_train)} records")
    # As many records to add as there are to remove: the work grows with the cube of both.
    x = np.concatenate([job.data.x_train[:n], job.data.x_add[:n]]).astype(np.float64)
    labels = np.concatenate([job.data.y_train[:n], job.data.y_add[:n]])
    rows = []
    with Progress(len(depths) * runs, job.spec.id) as progress:
        for depth in depths:
            rows.append(_linearized_depth(job, x, labels, n, depth, progress))
    seeds = {
        "base": fields["seed"],
        "init": "seed(kl_privacy, use=init, base, run, layer)",
        "noise": f"{fields['noise_source']}: (spec digest, run, step, 'depth N')",
        "runs": runs,
    }
    ledger = {**LEDGER, "steps": [row["steps"] for row in rows], "noise_multiplier": None}
    ledger["claimed"] = "Cor. 4.2 under the mean over initialisations; R was measured on the data"
    ledger["chosen_on_private_data"] = "T and sigma, through the measured R (unaccounted)"
    metrics = {"n_train": n, "n_add": len(x) - n, "epsilon": fields["epsilon"], "depths": rows}
    return {"metrics": metrics, "seeds": seeds, "ledger": ledger}


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
    """
    target = 2 * np.log(len(sign)) * sign - output
    return float(target @ np.linalg.solve(gram, target))


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
        normals = noise.normal(len(gram), repetition=run_index, step=step, use=f"depth {depth}")
        return root @ normals.astype(np.float64)

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
    seeds = {"base": fields["seed"], "init": "seed(kl_privacy, use=init, base, run, layer)"}
    ledger = {"mechanism": "none: nothing is trained and nothing of the data is released"}
    metrics = {"inputs": d, "width": width, "outputs": outputs, "rows": rows}
    return {"metrics": metrics, "seeds": seeds, "ledger": ledger}


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


def main(arguments: Sequence[str]) -> int:
    """Run one spec from the command line."""
    return job_main(arguments, MODULE, PACKAGES, run)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
