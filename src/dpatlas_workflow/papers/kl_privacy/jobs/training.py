"""kl_privacy: training runs of one condition, with the KL of every record along the way."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.base.progress import Progress
from dpatlas.base.records import rows_of
from dpatlas.base.seeds import Noise
from dpatlas.formulas.kl_privacy.theorems import kl_step
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.resume import Stages, State
from dpatlas.models.mlp import initial_weights, layer_shapes
from dpatlas.privacy.kl import (
    noisy_step,
    record_gaps,
    record_signals,
    signal_changes,
    squared_row_norms,
)
from dpatlas.privacy.noise import device_generator, device_normals
from dpatlas_workflow.papers.kl_privacy.jobs.ledger import CONVENTION, LEDGER, check_watched
from dpatlas_workflow.papers.kl_privacy.records.training import RECORD, KlTrainingSpec
from dpatlas_workflow.run.deals import Deals, Dealt

PROBED_RECORDS = 256
STEPS_BETWEEN_CHECKS = 20
Arrays = dict[str, np.ndarray]


def training(job: Job) -> Outcome:
    """Train every run of one condition, and summarise the KL of all records over the runs."""
    fields: KlTrainingSpec = job.fields
    noise = Noise(job.spec.digest, fields.noise_source)
    stages, deals = Stages(job, noise), Deals(job, ("train", "add"))
    check_watched(fields.watched, deals)
    results: list[Arrays] = []
    with Progress(fields.runs * fields.networks * fields.steps, job.spec.id) as progress:

        def train(run: int) -> Arrays:
            data = TrainingData.of(deals.of(run), job.device)

            def train_network(number: int) -> dict[str, Any]:
                descent = NoisyDescent(fields, data, run, number, noise, job.device)
                before = (len(results) * fields.networks + number) * fields.steps
                stages.finish(
                    descent, lambda: progress.reach(before + descent.steps_done, f"run {run}")
                )
                # Lists: these results are many, and as arrays each would have a file of its own.
                return {name: value.tolist() for name, value in descent.result().items()}

            networks = [
                stages.result(f"network-{number}", partial(train_network, number))
                for number in range(fields.networks)
            ]
            return over_networks(networks)

        for run in fields.run_numbers:
            results.append(stages.result(f"run-{run}", partial(train, run)))
            progress.reach(len(results) * fields.networks * fields.steps)
    ledger = {
        **LEDGER,
        "steps": fields.steps,
        "noise_multiplier": None,
        "noise_standard_deviation_per_step": float(np.sqrt(2 * fields.lr) * fields.sigma),
        "noise_source": fields.noise_source,
    }
    sizes = deals.sizes["train"], deals.sizes["add"], job.prepared.x_train.shape[1]
    return Outcome(summary(fields, *sizes, results), ledger)


class TrainingData:
    """Training records first, then the records to add, on the job's device.

    positions (records,): where each stands among the prepared records.
    """

    def __init__(self, x: Tensor, labels: Tensor, n_train: int, positions: np.ndarray):
        self.x, self.labels, self.n_train, self.positions = x, labels, n_train, positions
        self.x_norm2 = squared_row_norms(x)

    @classmethod
    def of(cls, dealt: Dealt, device: str) -> "TrainingData":
        """Join the two parts of a run's records."""
        x, labels, positions = (
            np.concatenate([of_part["train"], of_part["add"]])
            for of_part in (dealt.x, dealt.labels, dealt.positions)
        )
        tensors = [torch.from_numpy(array).to(device) for array in (x, labels)]
        return cls(tensors[0], tensors[1], len(dealt.labels["train"]), positions)


class NoisyDescent:
    """The training of one network of a run, a `Work`.

    Once its loss is not finite it ends: its KL and loss are NaN from that step on.
    """

    def __init__(
        self,
        fields: KlTrainingSpec,
        data: TrainingData,
        run: int,
        network: int,
        noise: Noise,
        device: str,
    ):
        self.fields, self.data, self.noise, self.device = fields, data, noise, device
        # Runs of one network, of all conditions, share the normals behind their initial weights.
        self.number = run * fields.networks + network
        self.lr, self.sigma = fields.lr, fields.sigma
        self.steps, self.steps_done = fields.steps, 0
        shape = (fields.init, data.x.shape[1], fields.width, fields.depth, fields.outputs)
        weights = initial_weights(*shape, key=fields.key, run=self.number, base_seed=fields.seed)
        self.weights = [torch.from_numpy(weight).to(device) for weight in weights]
        self.probe = SmoothnessProbe(self.weights, data, self.steps) if network == 0 else None
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
        if self.probe:
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

    def result(self) -> Arrays:
        """What is kept of the training.

        kl_max, kl_watched and loss (shown steps,); by_record (record steps, records as prepared);
        gap_max, gap_watched and norm2 (); diverged (), the first step whose KL is not finite,
        counted from 1, or 0; and probe_* where the network is probed.
        """
        fields = self.fields
        kl, loss, norm2 = (self.curves[name].cpu().numpy() for name in ("kl", "loss", "grad_norm2"))
        shown, kept = np.array(fields.shown_steps) - 1, np.array(fields.record_steps) - 1
        (watched,) = np.flatnonzero(self.data.positions == fields.watched)
        by_record = np.empty((len(kept), kl.shape[1]))
        by_record[:, self.data.positions] = kl[kept]
        gaps = kl[0] / kl_step(self.lr, self.sigma**2, 1.0, CONVENTION)
        infinite = ~np.isfinite(kl).all(1)
        result = {
            "kl_max": kl[shown].max(1),
            "kl_watched": kl[shown, watched],
            "loss": loss[shown],
            "by_record": by_record,
            "gap_max": gaps.max(),
            "gap_watched": gaps[watched],
            "norm2": norm2[0],
            "diverged": infinite.argmax() + 1 if infinite.any() else 0,
        }
        arrays = result | (self.probe.arrays() if self.probe else {})
        # Nobody reads the numbers of a run that diverged, and checkpoints hold finite ones only.
        return {name: np.nan_to_num(value) for name, value in arrays.items()}

    def state(self) -> State:
        """Arrays and facts from which `restore` continues to the same bits."""
        arrays = {f"weight_{layer}": w.cpu().numpy() for layer, w in enumerate(self.weights)}
        for name, curve in self.curves.items():
            arrays[name] = curve[: self.steps_done].cpu().numpy()
        probed = self.probe.arrays() if self.probe else {}
        return arrays | probed, {"steps_done": self.steps_done}

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        """Continue from a state."""
        self.steps_done = facts["steps_done"]
        for layer, weight in enumerate(self.weights):
            weight.copy_(torch.from_numpy(arrays[f"weight_{layer}"]))
        for name, curve in self.curves.items():
            curve[: self.steps_done] = torch.from_numpy(arrays[name])
        if self.probe:
            self.probe.change[:] = arrays["probe_change"]
            self.probe.distance[:] = arrays["probe_distance"]


def over_networks(networks: Sequence[Mapping[str, Any]]) -> Arrays:
    """The mean of the results of a run's networks: geometric of `kl_max`, arithmetic of the rest.

    The run diverged where its first network did that diverged; probes are the first network's.
    """
    diverged = [int(network["diverged"]) for network in networks if network["diverged"]]
    with np.errstate(divide="ignore"):
        logs = np.log([network["kl_max"] for network in networks])
    means = {
        name: np.asarray(np.mean([network[name] for network in networks], axis=0))
        for name in ("kl_watched", "loss", "by_record", "gap_max", "gap_watched", "norm2")
    }
    probed = {name: np.array(networks[0][name]) for name in ("probe_change", "probe_distance")}
    first = np.asarray(min(diverged, default=0))
    return {"kl_max": np.exp(logs.mean(0)), "diverged": first, **means, **probed}


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
        self.change, self.distance = np.full((2, len(self.steps)), np.nan)

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


def summary(
    fields: KlTrainingSpec, n_train: int, n_add: int, inputs: int, results: Sequence[Arrays]
) -> dict[str, Any]:
    """Facts and rows of a condition from its runs' results; no values of runs that diverged."""
    runs = fields.run_numbers
    shapes = layer_shapes(inputs, fields.width, fields.depth, fields.outputs)
    diverged = [int(result["diverged"]) or None for result in results]
    used = {run: r for run, r in zip(runs, results, strict=True) if not r["diverged"]}
    nothing = [None] * len(fields.shown_steps)

    def by_run(*names: str, missing: Any = None) -> dict[str, list[Any]]:
        return {
            name: [used[run][name].tolist() if run in used else missing for run in runs]
            for name in names
        }

    sums = np.zeros((len(fields.record_steps), n_train + n_add))
    for result in used.values():
        sums += result["by_record"]
    probed = {
        "gradient_change": [result["probe_change"].tolist() for result in used.values()],
        "distance": [result["probe_distance"].tolist() for result in used.values()],
    }
    start, curves = ("gap_max", "gap_watched", "norm2"), ("kl_max", "kl_watched", "loss")
    return {
        "n_train": n_train,
        "n_add": n_add,
        "inputs": inputs,
        "parameters": sum(out * into for out, into in shapes),
        "convention": CONVENTION,
        "runs": rows_of({"run": runs}, diverged=diverged, **by_run(*start)),
        "curves": rows_of(
            {"run": runs, "step": fields.shown_steps}, **by_run(*curves, missing=nothing)
        ),
        "probe": rows_of({"run": used, "step": probed_steps(fields.steps)}, **probed),
        "by_record": [
            {"run": runs[-1], "runs": len(used), **row}
            for row in rows_of({"step": fields.record_steps}, sums=sums)
        ],
    }


def probed_steps(steps: int) -> list[int]:
    """The steps 1, 2, 4, ... below `steps`."""
    return [2**power for power in range(64) if 2**power < steps]


KIND = Kind(training, record=RECORD, packages=("torch", "numpy"))
