"""Private training of a classifier, and the audit of one such run by canaries.

A job trains `runs` networks on a prepared data set and tests each one's last iterate on held-out
records. With `canaries` > 0 there is one run, and it is audited (module `canaries`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dpatlas.accounting.guarantees import composition, guarantee
from dpatlas.accounting.ledger import UNTOLD, Ran, ledger, tuning_of
from dpatlas.accounting.samplers import Poisson, Sampler, sampler
from dpatlas.checks.audit.jobs.canaries import Canaries, PoissonWithEmptySlots, verdict
from dpatlas.checks.audit.jobs.classifier import (
    accuracy,
    check_data,
    save_classifier,
    training_phase,
)
from dpatlas.checks.audit.records.classifier import Extras
from dpatlas.checks.audit.records.training import RECORD, TrainingSpec
from dpatlas.core.progress import EpsilonSoFar, Progress
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.resume import Stages, Watched
from dpatlas.models.build import build
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

# Number of points of the accuracy curve, the start not counted.
POINTS = 20
# Number of training records whose loss is shown on request.
LOSS_RECORDS = 256
# Begins the names of weights in the result of a run.
WEIGHTS = "weights/"


def train(job: Job) -> Outcome:
    """Train all runs, and audit the run where there are canaries.

    Raises InputError for settings that do not go together, before anything is trained.
    """
    fields: TrainingSpec = job.fields
    data = job.prepared
    check_data(data)
    canaries = Canaries.of(data, fields) if fields.canaries else None
    phase = training_phase(fields, batches_of(fields, len(data.x_train), canaries))
    # Refused before anything is trained.
    guarantee([phase.accounted], fields.delta, fields.relation)
    noise = Noise(job.spec.digest, fields.noise_source)
    stages = Stages(job, noise)
    extras = job.options or Extras()
    finished: list[dict[str, Any]] = []
    with Progress(fields.runs * phase.steps, job.spec.id) as progress:

        def train_run(number: int) -> dict[str, Any]:
            run = ClassifierRun(job, phase, canaries, number, noise)
            done = number * phase.steps
            note = progress_note(run, [Ran.of(each["ran"]) for each in finished], extras)
            stages.finish(run, lambda: progress.reach(done + run.steps_done, note))
            return run.result() | (run.weights() if extras.models else {})

        for number in range(fields.runs):
            finished.append(stages.result(f"run-{number}", partial(train_run, number)))
            progress.reach((number + 1) * phase.steps)
    ledger_of_runs = training_ledger([Ran.of(result["ran"]) for result in finished], fields)
    if extras.models:
        save_networks(job, extras.models, finished, ledger_of_runs)
    audit = None
    if canaries:
        scores = np.array(finished[0]["canary_scores"])
        audit = verdict(scores, canaries.included, phase.accounted, fields)
    tried, n_validation = fields.settings_tried, len(data.x_validation)
    selection = None
    if tried:
        selection = (
            f"one of {tried} settings, compared on the {n_validation} validation records with "
            "other seeds; the ledger says what that costs"
        )
    facts = {
        "n_train": len(data.x_train),
        "n_test": len(data.x_test),
        "noise_multiplier": phase.noise_multiplier,
        "expected_batch": phase.sampler.expected_batch,
        "selection": selection,
        "audit": audit,
    }
    tables = {
        "runs": [
            {
                "run": run,
                "accuracy": result["curve"][-1]["accuracy"],
                "ema_accuracy": result.get("ema_accuracy"),
                "skipped_records": result["skipped_records"],
            }
            for run, result in enumerate(finished)
        ],
        "curves": [
            {"run": run, **look} for run, result in enumerate(finished) for look in result["curve"]
        ],
    }
    return Outcome(facts | tables, ledger_of_runs)


def batches_of(fields: TrainingSpec, n_train: int, canaries: Canaries | None) -> Sampler:
    """The sampler of the training records and, after them, of a slot for each canary."""
    n = n_train + fields.canaries
    batches = sampler(fields.sampler, n, fields.batch)
    if canaries is None:
        return batches
    if fields.sampler != Poisson.name or fields.relation != "add_remove":
        found = f"{fields.sampler} with {fields.relation}"
        raise InputError("canaries", found, "poisson with add_remove")
    return PoissonWithEmptySlots(n, fields.batch, empty=canaries.empty_slots)


def progress_note(
    run: "ClassifierRun", finished: Sequence[Ran], extras: Extras
) -> Callable[[], str]:
    """What progress shows beside the steps: epsilon of all steps so far.

    The loss of training records is shown on request alone: it carries no noise, and a terminal's
    output ends up in logs. Accuracy is that of held-out records, and comes with the record.
    """

    def epsilon() -> float:
        phases = [*(each.phases for each in finished), run.training.ran.phases]
        return composition(phases, run.fields.delta, run.fields.relation).epsilon

    before = sum(phase.steps for each in finished for phase in each.phases)
    so_far = EpsilonSoFar(epsilon, lambda: before + run.steps_done)
    if not extras.show_private_loss:
        return so_far
    return lambda: f"{so_far()}, loss {run.private_loss():.4g} of training records (private)"


def save_networks(
    job: Job, folder: Path, finished: Sequence[Mapping[str, Any]], ledger: Mapping[str, Any]
) -> None:
    """Save the networks of all runs: in `folder`/model, or model-0, model-1, ... of several."""
    for number, result in enumerate(finished):
        model = network_of(job, number)
        weights = {name: result[f"{WEIGHTS}{name}"] for name in model.state_dict()}
        model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        name = "model" if len(finished) == 1 else f"model-{number}"
        accuracy = result.get("ema_accuracy", result["curve"][-1]["accuracy"])
        save_classifier(folder / name, job, model, ledger, accuracy)


def network_of(job: Job, run: int) -> nn.Module:
    """The network of a run with its initial weights."""
    fields, data = job.fields, job.prepared
    shape, outputs = data.image_shape, len(data.classes)
    axes = {"key": job.spec.key, "run": run, "base_seed": fields.seed}
    return build(fields.model, shape, outputs, **axes).to(job.device)


def training_ledger(runs: Sequence[Ran], fields: TrainingSpec) -> dict[str, Any]:
    """The ledger of all reported runs, of one alone, and of the trials that chose the settings.

    The spec gives only the number of settings that were tried: each is charged as a run like these.
    """
    accounts: dict[str, Any] = {"delta": fields.delta, "relation": fields.relation}
    tried, tuning = fields.settings_tried, None
    if tried:
        tuning = tuning_of([runs[0]] * tried, runs, declared=True, **accounts)
    return ledger(
        runs,
        chosen_on_private_data=None if tried else [UNTOLD],
        tuning=tuning,
        require_private=fields.epsilon is not None,
        **accounts,
    )


class ClassifierRun(Watched):
    """One network: training, its accuracy curve, and the canaries' scores where there are any."""

    training: PrivateTraining

    def __init__(
        self,
        job: Job,
        phase: TrainingPhase,
        canaries: Canaries | None,
        run: int,
        noise: Noise,
    ):
        self.fields = fields = job.fields
        data = job.prepared
        network = network_of(job, run)
        x, labels, x_test, y_test = (
            torch.from_numpy(part)
            for part in (data.x_train, data.y_train, data.x_test, data.y_test)
        )
        if canaries:
            network = canaries.network(network, data)
            x, x_test = canaries.records(x), canaries.records(x_test)
            x, labels = torch.cat([x, canaries.x]), torch.cat([labels, canaries.labels])
        self.model, self.canaries = network.to(job.device), canaries
        training = PrivateTraining(
            self.model,
            [phase],
            x.to(job.device),
            labels.to(job.device),
            noise=noise,
            repetition=run,
            ema_decay=fields.ema_decay,
        )
        self.test = [part.to(job.device) for part in (x_test, y_test)]
        spaced = np.linspace(0, phase.steps, POINTS + 1).round().astype(int)
        super().__init__(training, self._look, sorted(set(spaced.tolist())))

    def _look(self) -> dict[str, Any]:
        right, loss = accuracy(self.model, *self.test)
        return {"step": self.steps_done, "accuracy": right, "loss": loss}

    def private_loss(self) -> float:
        """Mean cross-entropy of the first training records, without noise: not for release."""
        x, labels = (part[:LOSS_RECORDS] for part in (self.training.x, self.training.labels))
        with torch.no_grad():
            return float(cross_entropy(self.model(x), labels).mean())

    def weights(self) -> dict[str, np.ndarray]:
        """The network's weights after `result`, which leaves the averaged ones if there are any."""
        return {
            f"{WEIGHTS}{name}": value.detach().cpu().numpy().copy()
            for name, value in self.model.state_dict().items()
        }

    def result(self) -> dict[str, Any]:
        """What the job keeps of a finished run."""
        result = {
            "curve": self.seen,
            "skipped_records": self.training.skipped_records,
            "ran": self.training.ran.facts(),
        }
        if self.canaries:
            result["canary_scores"] = self.canaries.scores(self.model).tolist()
        if self.training.ema is not None:
            with torch.no_grad():
                for name, value in self.model.named_parameters():
                    value.copy_(self.training.ema[name])
            result["ema_accuracy"], _ = accuracy(self.model, *self.test)
        return result


KIND = Kind(train, record=RECORD, packages=("torch", "numpy", "scipy", "dp-accounting"))
