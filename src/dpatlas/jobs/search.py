"""Tune every arm on the validation records, then measure it afresh on the test records.

Every trial and every reported run has noise and batches of its own, so that what choosing a setting
costs the private records is composition over all of them; the validation records, whose scores
carry no noise, have no finite epsilon. Test records are looked at by the reported runs of the best
setting alone, at their last iterate. A killed job goes on inside its last run.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from dpatlas.core.guard import integer
from dpatlas.core.progress import Progress, say
from dpatlas.core.seeds import Noise
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages, Work
from dpatlas.privacy.accounting import default_relation
from dpatlas.privacy.ledger import Ran, ledger, tuning_of
from dpatlas.privacy.training import PrivateTraining, TrainingPhase

# Most settings of an arm and runs of a setting: every run has a repetition number of its own.
MOST = 10_000
COUNT = integer(ge=1, lt=MOST)


class Run(Work, Protocol):
    """A training, which counts the gradients that were not finite."""

    skipped_records: int


@dataclass(frozen=True)
class Trial:
    """One run of one setting, scored on the records of `part`: "validation" or "test".

    number: counts all runs of a setting, the reported ones first, and keys initial weights, which
    settings share. repetition: keys batches and noise, which they do not.
    """

    search: "Search"
    part: str
    number: int
    repetition: int

    @property
    def noise(self) -> Noise:
        """Of the job."""
        return self.search.noise

    def train(
        self,
        model: nn.Module,
        phases: Sequence[TrainingPhase],
        x: torch.Tensor,
        labels: torch.Tensor,
        **more: Any,
    ) -> PrivateTraining:
        """The model's private training, done; `more` as `PrivateTraining` has it."""
        named = {"noise": self.noise, "repetition": self.repetition, **more}
        training = PrivateTraining(model, phases, x, labels, **named)
        self.finish(training)
        return training

    def finish(self, run: Run) -> None:
        """All steps of `run`, from its checkpoint if it has one."""
        self.search.stages.finish(run)
        if run.skipped_records:
            say(f"{self.search.job.spec.id}: {run.skipped_records} gradients were not finite")


@dataclass(frozen=True)
class Setting:
    """One point of an arm's grid.

    facts: what a row says of it. stated: what a row claims and guarantees of one reported run.
    score: train afresh; accuracy of the last iterate, and what ran.
    """

    facts: dict[str, Any]
    stated: Callable[[], dict[str, Any]]
    score: Callable[[Trial], tuple[float, Ran]]


class Search:
    """The rows of a job, one per arm, in the order of `arms`, and a ledger for each.

    arm_facts: what a row says of an arm; settings_of: its grid. named: a row in words. in_ledger:
    what its ledger says beside what ran. tuned_before: numbers of the rows whose trials chose a
    part of an arm's settings.
    """

    def __init__(
        self,
        job: Job,
        arms: Sequence[Hashable],
        arm_facts: Callable[[Any], dict[str, Any]],
        settings_of: Callable[[Any], Sequence[Setting]],
        *,
        named: Callable[[dict[str, Any]], str],
        in_ledger: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: {},
        tuned_before: Callable[[Any], Sequence[int]] = lambda arm: (),
    ):
        fields = job.spec.fields
        for name in ("runs", "tuning_runs"):
            COUNT.check(name, fields[name])
        self.job, self.arms = job, arms
        self.arm_facts, self.settings_of = arm_facts, settings_of
        self.named, self.in_ledger, self.tuned_before = named, in_ledger, tuned_before
        self.runs, self.tuning_runs = fields["runs"], fields["tuning_runs"]
        self.noise = Noise(job.spec.digest, fields["noise_source"])
        self.stages = Stages(job, self.noise)
        self.rows: list[dict[str, Any]] = []
        self.ledgers: list[dict[str, Any]] = []
        # By row and in JSON, what every trial did.
        self.trials: list[list[dict[str, Any]]] = []

    def run(self) -> list[dict[str, Any]]:
        """Every arm's facts and best setting, settings tried, and the accuracies seen."""
        with Progress(len(self.arms), self.job.spec.id) as progress:
            for arm in range(len(self.arms)):
                found = self.stages.result(f"arm-{arm}", partial(self._arm, arm))
                self.rows.append(found["row"])
                self.ledgers.append(found["ledger"])
                self.trials.append(found["trials"])
                progress.advance(str(found["row"]["method"]))
        return self.rows

    def _arm(self, arm: int) -> dict[str, Any]:
        """Row and ledger of an arm, and what its trials did."""
        settings = list(self.settings_of(self.arms[arm]))
        COUNT.check("settings of an arm", len(settings))

        def score(setting: int, part: str, first: int, run: int) -> tuple[float, dict[str, Any]]:
            block = 0 if part == "test" else 1 + setting
            trial = Trial(self, part, first + run, (arm * MOST + block) * MOST + run)

            def train() -> dict[str, Any]:
                value, ran = settings[setting].score(trial)
                return {"score": value, "ran": ran.facts()}

            found = self.stages.result(f"trial-{trial.repetition}", train)
            return found["score"], found["ran"]

        scores = [
            [score(number, "validation", self.runs, run) for run in range(self.tuning_runs)]
            for number in range(len(settings))
        ]
        tuned = [np.mean([value for value, _ in each]) for each in scores]
        best = int(np.argmax(tuned))
        found = [score(best, "test", 0, run) for run in range(self.runs)]
        trials = [facts for each in scores for _, facts in each]
        stated = settings[best].stated()
        row = {**self.arm_facts(self.arms[arm]), **settings[best].facts, **stated}
        statement = self._ledger(arm, row, [Ran.of(facts) for _, facts in found], trials)
        tuning = statement["tuning"]
        row |= {
            "settings_tried": len(settings),
            "trials": tuning["trials"],
            "with_tuning_epsilon": tuning["epsilon"],
            "all_runs_epsilon": tuning["epsilon_of_all"],
            "validation_accuracy": float(tuned[best]),
            "accuracy": [value for value, _ in found],
        }
        return {"row": row, "ledger": statement, "trials": trials}

    def _ledger(
        self,
        arm: int,
        row: dict[str, Any],
        reported: list[Ran],
        trials: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Of one reported run, and beside it of all that was trained to choose its settings."""
        fields = self.job.spec.fields
        before = sorted(set(self.tuned_before(self.arms[arm])))
        tried = [*(facts for number in before for facts in self.trials[number]), *trials]
        accounts = {
            "delta": fields["delta"],
            "relation": row["relation"] or default_relation(reported[0].phases),
            "accountant": fields.get("accountant", "auto"),
        }
        tuning = tuning_of([Ran.of(facts) for facts in tried], reported, **accounts)
        return {
            "arm": self.named(row),
            **ledger(reported[0], tuning=tuning, **self.in_ledger(row), **accounts),
        }


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of right answers; outputs (records, classes)."""
    return float((outputs.argmax(1) == labels).double().mean())
