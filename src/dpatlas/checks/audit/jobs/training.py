"""Private training of a classifier, and the audit of one such run by canaries.

A job trains `runs` networks on a prepared data set and tests each one's last iterate on held-out
records. With `canaries` > 0 there is one run, and it is audited (`experiments.canaries`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.checks.audit.jobs.canaries import (
    Canaries,
    CanaryAttack,
    PoissonWithEmptySlots,
    verdict,
)
from dpatlas.core.guard import integer, real
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, LegacyFields, legacy
from dpatlas.jobs.resume import Stages, State, Watched
from dpatlas.models.build import build
from dpatlas.privacy.accounting import Phase, calibrate, guarantee
from dpatlas.privacy.ledger import UNTOLD, Ran, ledger, tuning_of
from dpatlas.privacy.per_record import cross_entropy
from dpatlas.privacy.samplers import Poisson, sampler
from dpatlas.privacy.training import PrivateTraining, TrainingPhase

# Points of the accuracy curve after the start.
POINTS = 20
DOMAINS = {"runs": integer(ge=1), "canaries": integer(ge=0), "delta": real(gt=0, lt=1)}


def train(job: Job) -> dict[str, Any]:
    """Metrics and ledger of a spec of kind `training`."""
    fields, data = job.spec.fields, job.data
    check_data(data)
    for name, domain in DOMAINS.items():
        domain.check(name, fields[name])
    canaries = Canaries.of(data, fields) if fields["canaries"] else None
    n = len(data.x_train) + fields["canaries"]
    phase = training_phase(fields, n, canaries)
    # Refused before anything is trained.
    guarantee([phase.accounted], fields["delta"], fields["relation"])
    noise = Noise(job.spec.digest, fields["noise_source"])
    stages = Stages(job, noise)
    finished: list[dict[str, Any]] = []
    with Progress(fields["runs"] * phase.steps, job.spec.id) as progress:

        def one(number: int) -> dict[str, Any]:
            run = ClassifierRun(job, phase, canaries, number, noise)
            done = number * phase.steps
            stages.finish(run, lambda: progress.reach(done + run.steps_done))
            return run.result()

        for number in range(fields["runs"]):
            finished.append(stages.result(f"run-{number}", partial(one, number)))
            progress.reach((number + 1) * phase.steps)
    metrics = summary(finished, phase, data, fields)
    statement = statement_of([Ran.of(each["ran"]) for each in finished], fields)
    if canaries:
        scores = np.array(finished[0]["canary_scores"])
        metrics["audit"] = verdict(scores, canaries, fields, statement["epsilon"])
    return {
        "metrics": metrics,
        "ledger": statement,
    }


def statement_of(runs: Sequence[Ran], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The ledger of all reported runs, of one alone, and of the trials that chose the settings.

    Of the settings that were tried the spec tells the number: each counts as a run like these.
    """
    accounts = {name: fields[name] for name in ("delta", "relation")}
    tried, tuning, chosen = fields["settings_tried"], None, [UNTOLD]
    if tried:
        chosen = None
        tuning = tuning_of(runs[:1] * tried, runs, declared=True, **accounts)
    private = fields["epsilon"] is not None
    return ledger(
        runs,
        chosen_on_private_data=chosen,
        tuning=tuning,
        require_private=private,
        **accounts,
    )


def training_phase(
    fields: dict[str, Any],
    n: int,
    canaries: Canaries | None,
    calibrated: Callable[..., float] = calibrate,
) -> TrainingPhase:
    """The phase that the spec asks for, its noise `calibrated` if `epsilon` is the target."""
    if (fields["epsilon"] is None) == (fields["noise_multiplier"] is None):
        found = "both" if fields["epsilon"] is not None else "neither"
        raise InputError("epsilon and noise_multiplier", found, "one of the two")
    batches = sampler(fields["sampler"], n, fields["batch"])
    if canaries:
        if fields["sampler"] != Poisson.name or fields["relation"] != "add_remove":
            found = f"{fields['sampler']} with {fields['relation']}"
            raise InputError("canaries", found, "poisson with add_remove")
        batches = PoissonWithEmptySlots(n, fields["batch"], empty=canaries.empty_slots)
    noise_multiplier = fields["noise_multiplier"]
    if noise_multiplier is None:
        noise_multiplier = calibrated(
            lambda noise: [Phase(batches, noise, fields["steps"])],
            fields["epsilon"],
            fields["delta"],
            fields["relation"],
        )
    return TrainingPhase(
        batches,
        noise_multiplier,
        **{
            name: fields[name]
            for name in (
                "max_grad_norm",
                "steps",
                "lr",
                "optimizer",
                "momentum",
                "weight_decay",
                "clipping",
                "max_physical_batch",
            )
        },
    )


def check_data(data: Prepared) -> None:
    """InputError for a data set without images of named classes, or without any to test on."""
    for name in ("classes", "image_shape"):
        if not data.manifest.get(name):
            raise InputError("manifest of the data set", f"no {name}", "a set of labelled images")
    if len(data.x_test) == 0:
        raise InputError("n_test", 0, "at least 1: accuracy is measured on held-out records")


class ClassifierRun(Watched):
    """One network: training, its accuracy curve, and the attack where there are canaries."""

    def __init__(
        self,
        job: Job,
        phase: TrainingPhase,
        canaries: Canaries | None,
        run: int,
        noise: Noise,
    ):
        fields, data = job.spec.fields, job.data
        self.model = build(
            fields["model"],
            data.image_shape,
            len(data.classes),
            key=job.spec.key,
            run=run,
            base_seed=fields["seed"],
        ).to(job.device)
        x, labels = data.x_train, data.y_train
        if canaries:
            x, labels = np.concatenate([x, canaries.x]), np.concatenate([labels, canaries.labels])
        self.attack = CanaryAttack(self.model, canaries, phase) if canaries else None
        training = PrivateTraining(
            self.model,
            [phase],
            torch.from_numpy(x).to(job.device),
            torch.from_numpy(labels).to(job.device),
            noise=noise,
            repetition=run,
            ema_decay=fields["ema_decay"],
            on_update=self.attack and self.attack.see,
        )
        if self.attack:
            self.attack.training = training
        self.test = [torch.from_numpy(part).to(job.device) for part in (data.x_test, data.y_test)]
        spaced = np.linspace(0, phase.steps, POINTS + 1).round().astype(int)
        super().__init__(training, self._look, sorted(set(spaced.tolist())))

    def _look(self) -> dict[str, float | None]:
        return {"step": self.steps_done, **accuracy(self.model, *self.test)}

    def result(self) -> dict[str, Any]:
        """What was seen of the whole run."""
        result = {
            "curve": self.seen,
            "skipped_records": self.training.skipped_records,
            "ran": self.training.ran.facts(),
        }
        if self.training.ema is not None:
            with torch.no_grad():
                for name, value in self.model.named_parameters():
                    value.copy_(self.training.ema[name])
            result["ema"] = accuracy(self.model, *self.test)
        if self.attack:
            result["canary_scores"] = self.attack.scores().tolist()
        return result

    def state(self) -> State:
        """The attack's too."""
        arrays, facts = super().state()
        return arrays | (self.attack.state() if self.attack else {}), facts

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state."""
        super().restore(arrays, facts)
        if self.attack:
            self.attack.restore(arrays)


def accuracy(model: nn.Module, x: Tensor, labels: Tensor) -> dict[str, float | None]:
    """Share of right answers and mean cross-entropy, None where that is no number."""
    with torch.no_grad():
        output = torch.cat([model(rows) for rows in x.split(1000)])
        right = (output.argmax(1) == labels).double().mean()
        loss = float(cross_entropy(output.double(), labels).mean())
    return {"accuracy": float(right), "loss": loss if math.isfinite(loss) else None}


def summary(
    finished: list[dict[str, Any]], phase: TrainingPhase, data: Prepared, fields: dict[str, Any]
) -> dict[str, Any]:
    """Metrics of a job; `accuracy` lists the last iterate's of every run."""
    tried = fields["settings_tried"]
    return {
        "n_train": len(data.x_train),
        "n_test": len(data.x_test),
        "noise_multiplier": phase.noise_multiplier,
        "expected_batch": phase.sampler.expected_batch,
        "accuracy": [result["curve"][-1]["accuracy"] for result in finished],
        "curves": [result["curve"] for result in finished],
        "ema_accuracy": [result["ema"]["accuracy"] for result in finished if "ema" in result],
        "skipped_records": [result["skipped_records"] for result in finished],
        "selection": tried
        and f"one of {tried} settings, compared on the {len(data.x_validation)} validation "
        "records with other seeds; the ledger says what that costs",
        "audit": None,
    }


KIND = Kind(legacy(train), spec=LegacyFields, packages=("torch", "numpy", "scipy", "dp-accounting"))
