"""Settings of a classifier chosen privately: the best of a random number of trials is released.

A trial draws settings log-uniformly from the spec's ranges, trains as `training` does, and counts
right answers on the validation records. `privacy.selection` states what releasing the best trial
guarantees. The guarantee requires that the number of trials and the results of the other trials
stay secret: checkpoints hold them, the record and stderr reveal nothing about them. Initial weights
and settings are drawn as the noise is, since known ones would identify the released trial.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.checks.audit.jobs.classifier import (
    accuracy,
    check_data,
    save_classifier,
    training_phase,
)
from dpatlas.checks.audit.records.selection import Metrics, Spec
from dpatlas.core.progress import say
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.resume import Stages
from dpatlas.models.build import build
from dpatlas.privacy.accounting import Guarantee
from dpatlas.privacy.ledger import PUBLIC, Ran, ledger, private_selection
from dpatlas.privacy.samplers import sampler
from dpatlas.privacy.selection import (
    Score,
    calibrate_selected,
    selected_guarantee,
    trials_law,
)
from dpatlas.privacy.training import PrivateTraining

RELEASED = "settings, model and score of the best trial, or that no trial was drawn,"
SECRET = (
    "the number of trials and all that the others gave; checkpoints, cost.json and the time that "
    "it took tell about them and are not for release. Every run is a release of its own"
)


def select(job: Job) -> Outcome:
    """Train as many trials as the law draws, and release the best one."""
    data = job.prepared
    check_data(data)
    if len(data.x_validation) == 0:
        raise InputError("n_validation", 0, "at least 1: trials are scored on validation records")
    selection = Selection(job)
    # Refused before anything is trained.
    selection_ledger(selection)
    metrics = selection.run()
    ledger = selection_ledger(selection)
    model = selection.released()
    if job.options and job.options.models and model is not None:
        save_classifier(job.options.models / "model", job, model, ledger, metrics.accuracy)
    return Outcome(metrics, ledger)


class Selection:
    """The trials of one spec, and the best so far."""

    def __init__(self, job: Job):
        fields: Spec = job.fields
        data = job.prepared
        self.job, self.fields, self.data = job, fields, data
        self.ranges = dict(sorted(fields.ranges.items()))
        self.law = trials_law(fields.law, fields.expected_trials)
        noise = fields.score_noise
        self.score = None if noise is None else Score(len(data.x_validation), noise)
        lowest = {name: low for name, (low, _) in self.ranges.items()}
        self.phase = training_phase(
            fields.model_copy(update=lowest),
            sampler(fields.sampler, len(data.x_train), fields.batch),
            partial(calibrate_selected, law=self.law, score=self.score),
        )
        self.noise = Noise(job.spec.digest, fields.noise_source)
        self.records = {
            part: self._on_device(getattr(data, f"x_{part}"), getattr(data, f"y_{part}"))
            for part in ("train", "validation", "test")
        }
        self.stages = Stages(job, self.noise)
        self.told = False
        # Settings and score, facts for the ledger, and weights of the best trial.
        self.best: dict[str, Any] | None = None
        self.ran: Ran | None = None
        self.weights: dict[str, np.ndarray] = {}

    def run(self) -> Metrics:
        """Train all trials; the metrics of the best one."""
        for trial in range(self.law.draw(self.noise)):
            result = self.stages.result(f"trial-{trial}", partial(self._if_best, trial))
            if result:
                self.best, self.ran = result["best"], Ran.of(result["ran"])
                self.weights = {
                    name.removeprefix("weights/"): value
                    for name, value in result.items()
                    if isinstance(value, np.ndarray)
                }
        return self._metrics()

    def _if_best(self, trial: int) -> dict[str, Any]:
        """Settings, score and weights of a trial; empty unless it scores above all before it."""
        settings = self._settings(trial)
        training = self._training(trial, settings)
        # Saved before the first step, since the number of trials depends on the noise's secret.
        self.stages.save()
        if not self.told:
            say(f"{self.job.spec.id}: the number of trials is secret: no progress is shown")
            self.told = True
        self.stages.finish(training)
        model = training.model
        right = right_answers(model, *self.records["validation"])
        if self.score is None:
            score = right / len(self.records["validation"][0])
        else:
            score = self.score.released(right, self.noise, trial)
        if self.best is not None and score <= self.best["score"]:
            return {}
        weights = {
            f"weights/{name}": value.detach().cpu().numpy().copy()
            for name, value in model.named_parameters()
        }
        best = {"settings": settings, "score": score}
        return {"best": best, "ran": training.ran.facts(), **weights}

    def _settings(self, trial: int) -> dict[str, float]:
        draws = self.noise.generator(repetition=trial, step=0, use="settings")
        return {
            name: low * (high / low) ** float(draws.random())
            for name, (low, high) in self.ranges.items()
        }

    def _training(self, trial: int, settings: dict[str, float]) -> PrivateTraining:
        return PrivateTraining(
            self._network(trial),
            [replace(self.phase, **dict[str, Any](settings))],
            *self.records["train"],
            noise=self.noise,
            repetition=trial,
        )

    def _network(self, trial: int = 0) -> nn.Module:
        """A network whose initial weights are as secret as the noise."""
        return build(
            self.fields.model,
            self.data.image_shape,
            len(self.data.classes),
            key=self.fields.key,
            run=0,
            base_seed=self.noise.key(trial, 0, "init"),
        ).to(self.job.device)

    def released(self) -> nn.Module | None:
        """The network of the best trial; None if no trial was drawn."""
        if self.best is None:
            return None
        model = self._network()
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.copy_(torch.from_numpy(self.weights[name]))
        return model

    def _metrics(self) -> Metrics:
        """Metrics of the released trial."""
        released: dict[str, Any] = {"settings": None, "score": None, "accuracy": None}
        model = self.released()
        if self.best is not None and model is not None:
            right, loss = accuracy(model, *self.records["test"])
            released = {**self.best, "accuracy": right, "loss": loss}
        return Metrics(
            **released,
            score_deviation=None if self.score is None else self.score.noise / self.score.records,
            n_train=len(self.data.x_train),
            n_validation=len(self.data.x_validation),
            n_test=len(self.data.x_test),
            noise_multiplier=self.phase.noise_multiplier,
            expected_batch=self.phase.sampler.expected_batch,
            expected_trials=self.law.mean,
        )

    def _on_device(self, *arrays: np.ndarray) -> list[Tensor]:
        return [torch.from_numpy(array).to(self.job.device) for array in arrays]


def right_answers(model: nn.Module, x: Tensor, labels: Tensor) -> int:
    """How many of the records x (n, d) the model gives their label (n,)."""
    with torch.no_grad():
        guesses = torch.cat([model(rows).argmax(1) for rows in x.split(1000)])
    return int((guesses == labels).sum())


def selection_ledger(selection: Selection) -> dict[str, Any]:
    """The ledger of the released trial, with the guarantee of one trial alone beside it.

    Based on the phases that ran, or on the planned ones where no trial was drawn.
    """
    fields, phase = selection.fields, selection.phase
    accounts: dict[str, Any] = {"delta": fields.delta, "relation": fields.relation}
    ran = selection.ran or Ran(
        "DP-SGD", (phase.accounted,), (phase.max_grad_norm,), fields.noise_source
    )
    guarantee = selected_guarantee(ran.phases, selection.law, score=selection.score, **accounts)
    selected = guarantee.selected
    private = selection.score is not None
    paid = f"a validation record pays epsilon {guarantee.validation:.6g}" if private else ""
    drawn = ", ".join(
        f"{name} from {low:g} to {high:g}" for name, (low, high) in selection.ranges.items()
    )
    tuning = private_selection(
        f"{selection.law.describe()}, each with {drawn} drawn log-uniformly",
        epsilon=selected.epsilon,
        by="Papernot and Steinke 2022",
        held_out=f"{paid or 'validation records are public'}; test records are public",
        **accounts,
    )
    alone = ledger(ran, tuning=tuning, released=RELEASED, require_private=True, **accounts)
    return {
        **alone,
        "mechanism": f"the best of a random number of trainings, each: {alone['mechanism']}",
        "neighbour_relation": f"{alone['neighbour_relation']}; that record is of the training "
        f"{'or of the validation part' if private else 'part'}, the others stay in their part",
        "accountant": selected.accountant,
        "event": selected.event,
        "cross_check": selected.cross_check,
        "warnings": list(selected.warnings),
        "epsilon": selected.epsilon,
        "guaranteed": in_words(selected),
        "single_trial": {
            "epsilon": guarantee.single.epsilon,
            "guaranteed": in_words(guarantee.single),
            "accountant": guarantee.single.accountant,
        },
        "epsilon_by_part": {
            "training": guarantee.training,
            "validation": guarantee.validation if private else PUBLIC,
            "test": f"{PUBLIC}: accuracy on them carries no noise",
        },
        "secret": SECRET,
        # The cost of releasing the best trial, not of all trials together.
        "chosen_on_private_data": [
            {
                "what": tuning["what"],
                "cost": f"{in_words(selected)} of the best trial alone, the choice included "
                f"({tuning['by']}); {tuning['held_out']}",
            }
        ],
    }


def in_words(guarantee: Guarantee) -> str:
    """Epsilon, delta and relation in one line."""
    return f"epsilon {guarantee.epsilon:.6g} at delta {guarantee.delta:g} ({guarantee.relation})"


KIND = Kind(select, spec=Spec, packages=("torch", "numpy", "scipy", "dp-accounting"))
