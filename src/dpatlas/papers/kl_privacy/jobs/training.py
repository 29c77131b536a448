"""kl_privacy: training runs of one condition, with the KL of every record along the way."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise, generator, seed
from dpatlas.data.prepared import Prepared
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.resume import Stages, State
from dpatlas.models.mlp import initial_weights, layer_shapes
from dpatlas.papers.kl_privacy.formulas.theorems import kl_step
from dpatlas.papers.kl_privacy.jobs.ledger import CONVENTION, LEDGER
from dpatlas.papers.kl_privacy.records.training import Loss, Metrics, Probe, Spec, WorstCase
from dpatlas.privacy.kl import (
    noisy_step,
    record_gaps,
    record_signals,
    signal_changes,
    squared_row_norms,
)
from dpatlas.privacy.noise import device_generator, device_normals

RESAMPLES = 400
INTERVAL = 0.95
PROBED_RECORDS = 256
STEPS_BETWEEN_CHECKS = 20


def training(job: Job) -> Outcome:
    """Train every run of one condition, and summarise the KL of all records over the runs."""
    fields: Spec = job.fields
    steps = fields.steps
    data = TrainingData.of(job.prepared, job.device)
    noise = Noise(job.spec.digest, fields.noise_source)
    stages = Stages(job, noise)
    results = []
    with Progress(fields.runs * steps, job.spec.id) as progress:

        def train(number: int) -> dict[str, np.ndarray]:
            run = NoisyDescent(fields, data, number, noise, job.device)
            before = number * steps
            stages.finish(run, lambda: progress.reach(before + run.steps_done, f"run {number}"))
            return run.result()

        for number in range(fields.runs):
            results.append(stages.result(f"run-{number}", partial(train, number)))
            progress.reach((number + 1) * steps)
    ledger = {
        **LEDGER,
        "steps": steps,
        "noise_multiplier": None,
        "noise_standard_deviation_per_step": float(np.sqrt(2 * fields.lr) * fields.sigma),
        "noise_source": fields.noise_source,
    }
    return Outcome(summary(fields, data, results), ledger)


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


class NoisyDescent:
    """One training run, a `Work`.

    Once its loss is not finite it ends: its KL and loss are NaN from that step on.
    """

    def __init__(self, fields: Spec, data: TrainingData, number: int, noise: Noise, device: str):
        self.data, self.number, self.noise, self.device = data, number, noise, device
        self.lr, self.sigma = fields.lr, fields.sigma
        self.steps, self.steps_done = fields.steps, 0
        self.weights = [
            torch.from_numpy(weight).to(device)
            for weight in initial_weights(
                fields.init,
                data.x.shape[1],
                fields.width,
                fields.depth,
                fields.outputs,
                key=fields.key,
                run=number,
                base_seed=fields.seed,
            )
        ]
        self.probe = SmoothnessProbe(self.weights, data, self.steps)
        steps = (self.steps,)
        shapes = {"kl": (*steps, len(data.x)), "loss": steps, "grad_norm2": steps}
        # Indexed by step, zero for the steps that have not been taken.
        self.curves = {
            name: torch.zeros(shape, dtype=torch.float64, device=device)
            for name, shape in shapes.items()
        }

    def step(self) -> None:
        """One noisy step; its KL divergence for every record is added to the curve."""
        step, data, curves = self.steps_done, self.data, self.curves
        self.probe.look(step, self.weights)
        gaps = record_gaps(self.weights, data.x, data.labels, data.n_train, data.x_norm2)
        step_kl = kl_step(self.lr, self.sigma**2, gaps.squared_gaps(), CONVENTION)
        curves["kl"][step] = step_kl if step == 0 else curves["kl"][step - 1] + step_kl
        curves["loss"][step] = gaps.losses[: data.n_train].mean(dtype=torch.float64)
        curves["grad_norm2"][step] = gaps.gbar_norm2
        size = sum(weight.numel() for weight in self.weights)
        draws = noise_draws(self.noise, size, self.number, step, self.device)
        noisy_step(self.weights, gaps.gradient, draws, self.lr, self.sigma)
        self.steps_done += 1
        if step % STEPS_BETWEEN_CHECKS == 0 and not torch.isfinite(curves["loss"][step]):
            for name in ("kl", "loss"):
                curves[name][step:] = torch.nan
            self.steps_done = self.steps

    def result(self) -> dict[str, np.ndarray]:
        """Arrays kl (steps, records), loss (steps,), grad_norm2 (steps,) and probe_*."""
        curves = {name: curve.cpu().numpy() for name, curve in self.curves.items()}
        return curves | self.probe.arrays()

    def state(self) -> State:
        """Arrays and facts from which `restore` continues to the same bits."""
        arrays = {f"weight_{layer}": w.cpu().numpy() for layer, w in enumerate(self.weights)}
        for name, curve in self.curves.items():
            arrays[name] = curve[: self.steps_done].cpu().numpy()
        return arrays | self.probe.arrays(), {"steps_done": self.steps_done}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Continue from a state."""
        self.steps_done = facts["steps_done"]
        for layer, weight in enumerate(self.weights):
            weight.copy_(torch.from_numpy(arrays[f"weight_{layer}"]))
        for name, curve in self.curves.items():
            curve[: self.steps_done] = torch.from_numpy(arrays[name])
        self.probe.change[:] = arrays["probe_change"]
        self.probe.distance[:] = arrays["probe_distance"]


def noise_draws(noise: Noise, size: int, repetition: int, step: int, device: str) -> Tensor:
    """N(0, 1) draws of one step on `device`, float64.

    The CPU draws from numpy's Philox, a GPU from its own counter-based generator, so both are keyed
    but differ from each other: a record says which device it ran on.
    """
    if device == "cpu":
        return torch.from_numpy(noise.normal(size, repetition=repetition, step=step, use="step"))
    draws = device_generator(noise.key(repetition, step, "step"), device)
    return device_normals((size,), draws)


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
        self.signals_at_start = record_signals(self.start, self.x, self.labels)
        self.steps = probed_steps(steps)
        self.change = np.full(len(self.steps), np.nan)
        self.distance = np.full(len(self.steps), np.nan)

    def look(self, step: int, weights: list[Tensor]) -> None:
        """Measure if `step` is one of the probed steps."""
        if step not in self.steps:
            return
        index = self.steps.index(step)
        signals = record_signals(weights, self.x, self.labels)
        self.change[index] = float(signal_changes(self.signals_at_start, signals).max().sqrt())
        squared = sum(
            torch.linalg.vector_norm(weight - origin, dtype=torch.float64).square()
            for weight, origin in zip(weights, self.start, strict=True)
        )
        self.distance[index] = float(squared.sqrt())

    def arrays(self) -> dict[str, np.ndarray]:
        """The measurements so far, for a checkpoint or a result; NaN at steps not yet reached."""
        return {"probe_change": self.change, "probe_distance": self.distance}


def summary(fields: Spec, data: TrainingData, results: list[dict[str, np.ndarray]]) -> Metrics:
    """Metrics of a condition from the arrays of its runs; diverged runs are named and left out."""
    d = data.x.shape[1]
    shapes = layer_shapes(d, fields.width, fields.depth, fields.outputs)
    diverged = [_divergence_step(result["kl"]) for result in results]
    used = [result for result, step in zip(results, diverged, strict=True) if step is None]
    measured: dict[str, Any] = dict.fromkeys(
        ("kl", "loss", "gradient_gap_at_start", "gradient_norm2_at_start", "probe")
    )
    if used:
        kl = np.stack([result["kl"] for result in used])
        kl_per_gap = kl_step(fields.lr, fields.sigma**2, 1.0, CONVENTION)
        measured = {
            "kl": _worst_case(kl, fields.seed),
            "loss": Loss(runs=np.stack([result["loss"] for result in used]).T.tolist()),
            "gradient_gap_at_start": float(kl[:, 0].mean(0).max() / kl_per_gap),
            "gradient_norm2_at_start": float(np.mean([result["grad_norm2"][0] for result in used])),
            "probe": Probe(
                steps=probed_steps(fields.steps),
                gradient_change=[result["probe_change"].tolist() for result in used],
                distance=[result["probe_distance"].tolist() for result in used],
            ),
        }
    return Metrics(
        n_train=data.n_train,
        n_add=len(data.x) - data.n_train,
        inputs=d,
        parameters=sum(out * into for out, into in shapes),
        convention=CONVENTION,
        diverged=diverged,
        runs_used=len(used),
        **measured,
    )


def _worst_case(kl: np.ndarray, base_seed: int) -> WorstCase:
    """Worst-case statistics of kl (runs, steps, records)."""
    runs, steps, _ = kl.shape
    mean = kl.mean(0)
    worst_record = mean.argmax(1)
    draws = generator(seed("kl_privacy", use="bootstrap", runs=runs, base=base_seed))
    shares = draws.multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES) / runs
    tails = (100 * (1 - INTERVAL) / 2, 100 * (1 + INTERVAL) / 2)
    # Resample by step so that memory stays at one step's (resamples, records).
    intervals = [np.percentile((shares @ kl[:, step]).max(1), tails) for step in range(steps)]
    return WorstCase(
        worst=mean.max(1).tolist(),
        low=[float(low) for low, _ in intervals],
        high=[float(high) for _, high in intervals],
        interval=f"{INTERVAL:.0%} bootstrap over runs of the maximum over records of the mean",
        worst_record=worst_record.tolist(),
        worst_runs=kl[:, np.arange(steps), worst_record].T.tolist(),
        run_max=kl.max(2).T.tolist(),
        mean=mean.mean(1).tolist(),
    )


def _divergence_step(kl: np.ndarray) -> int | None:
    """The first step, counted from 1, at which kl (steps, records) is not finite, if any is."""
    diverged = ~np.isfinite(kl).all(1)
    return int(diverged.argmax()) + 1 if diverged.any() else None


def probed_steps(steps: int) -> list[int]:
    """The steps 1, 2, 4, ... below `steps`."""
    return [2**power for power in range(64) if 2**power < steps]


KIND = Kind(training, spec=Spec, packages=("torch", "numpy"))
