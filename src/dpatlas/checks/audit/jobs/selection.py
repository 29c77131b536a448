"""Settings of a classifier chosen privately: the best of a random number of trials is released.

A trial draws settings from the spec's ranges, trains as `training` does, and counts right answers
on the validation records (`dpatlas.jobs.trials`).
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.accounting.samplers import sampler
from dpatlas.accounting.selection import Score, calibrate_selected, trials_law
from dpatlas.checks.audit.jobs.classifier import (
    accuracy,
    check_data,
    save_classifier,
    training_phase,
)
from dpatlas.checks.audit.records.selection import RECORD, SelectionSpec
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.trials import Choice, Trials
from dpatlas.models.build import build
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining


def select(job: Job) -> Outcome:
    """Train as many trials as the law draws, and release the best one."""
    data = job.prepared
    check_data(data)
    if len(data.x_validation) == 0:
        raise InputError("n_validation", 0, "at least 1: trials are scored on validation records")
    selection = Selection(job)
    accounts = (selection.fields.delta, selection.fields.relation)
    # Refused before anything is trained.
    selection.trials.ledger(*accounts)
    selection.trials.run()
    facts = selection.facts()
    ledger = selection.trials.ledger(*accounts)
    model = selection.released()
    if job.options and job.options.models and model is not None:
        save_classifier(job.options.models / "model", job, model, ledger, facts["accuracy"])
    return Outcome(facts, ledger)


class Selection:
    """The trials of one spec."""

    def __init__(self, job: Job):
        fields: SelectionSpec = job.fields
        data = job.prepared
        self.job, self.fields, self.data = job, fields, data
        ranges, noise = dict(sorted(fields.ranges.items())), fields.score_noise
        self.choice = Choice(
            trials_law(fields.law, fields.expected_trials),
            ranges,
            None if noise is None else Score(len(data.x_validation), noise),
        )
        lowest = {name: low for name, (low, _) in ranges.items()}
        self.phase = training_phase(
            fields.model_copy(update=lowest),
            sampler(fields.sampler, len(data.x_train), fields.batch),
            partial(calibrate_selected, law=self.choice.law, score=self.choice.score),
        )
        self.noise = Noise(job.spec.digest, fields.noise_source)
        self.records = {
            part: self._on_device(getattr(data, f"x_{part}"), getattr(data, f"y_{part}"))
            for part in ("train", "validation", "test")
        }
        self.trials = Trials(
            job,
            self.noise,
            self.choice,
            self.phase,
            self._training,
            lambda model: right_answers(model, *self.records["validation"]),
            len(data.x_validation),
        )

    def _training(self, trial: int, phase: TrainingPhase) -> PrivateTraining:
        network, records = self._network(trial), self.records["train"]
        return PrivateTraining(network, [phase], *records, noise=self.noise, repetition=trial)

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
        return None if self.trials.best is None else self.trials.load_best(self._network())

    def facts(self) -> dict[str, Any]:
        """What the record holds: of the released trial, and of all."""
        released = dict.fromkeys(("settings", "score", "accuracy", "loss"))
        model, score = self.released(), self.choice.score
        if self.trials.best is not None and model is not None:
            right, loss = accuracy(model, *self.records["test"])
            released |= {**self.trials.best, "accuracy": right, "loss": loss}
        return {
            **released,
            "score_deviation": None if score is None else score.noise / score.records,
            "n_train": len(self.data.x_train),
            "n_validation": len(self.data.x_validation),
            "n_test": len(self.data.x_test),
            "noise_multiplier": self.phase.noise_multiplier,
            "expected_batch": self.phase.sampler.expected_batch,
            "expected_trials": self.choice.law.mean,
        }

    def _on_device(self, *arrays: np.ndarray) -> list[Tensor]:
        return [torch.from_numpy(array).to(self.job.device) for array in arrays]


def right_answers(model: nn.Module, x: Tensor, labels: Tensor) -> int:
    """How many of the records x (n, d) the model gives their label (n,)."""
    with torch.no_grad():
        guesses = torch.cat([model(rows).argmax(1) for rows in x.split(1000)])
    return int((guesses == labels).sum())


KIND = Kind(select, record=RECORD, packages=("torch", "numpy", "scipy", "dp-accounting"))
