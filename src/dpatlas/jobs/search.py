"""Search: tune every arm on the validation records, then train anew and test the best setting.

Trials and reported runs have independent noise and batches, so the cost of choosing a setting for
the training records is the composition of all of them; the validation records, whose scores carry
no noise, have no finite epsilon. Only the reported runs of the best setting, at their last iterate,
are evaluated on test records. A killed job continues inside the run that was interrupted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import nn

from dpatlas.core.facts import MAX_RUNS_PER_SETTING, TunedRow
from dpatlas.core.guard import integer
from dpatlas.core.progress import Progress, say
from dpatlas.core.seeds import Noise
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages, Work
from dpatlas.privacy.accounting import default_relation
from dpatlas.privacy.ledger import Ran, ledger, tuning_of
from dpatlas.privacy.training import PrivateTraining, TrainingPhase

SETTINGS = integer(ge=1, lt=MAX_RUNS_PER_SETTING)
A = TypeVar("A")
R = TypeVar("R", bound=TunedRow)


class Run(Work, Protocol):
    """A training that counts the gradients that were not finite."""

    @property
    def skipped_records(self) -> int:
        """Number of gradients that were not finite."""


@dataclass(frozen=True)
class Trial:
    """One run of one setting, scored on the records of `part`: "validation" or "test".

    number: index among all runs of a setting, the reported ones first; it keys initial weights,
    which settings share. repetition: keys batches and noise, which no two runs share.
    """

    search: "Search[Any, Any]"
    part: str
    number: int
    repetition: int

    @property
    def noise(self) -> Noise:
        """The job's noise source."""
        return self.search.noise

    def train(
        self,
        model: nn.Module,
        phases: Sequence[TrainingPhase],
        x: torch.Tensor,
        labels: torch.Tensor,
        **more: Any,
    ) -> PrivateTraining:
        """The completed private training of the model; `more`: arguments of `PrivateTraining`."""
        options = {"noise": self.noise, "repetition": self.repetition, **more}
        training = PrivateTraining(model, phases, x, labels, **options)
        self.finish(training)
        return training

    def finish(self, run: Run) -> None:
        """Take all steps of `run`, from its checkpoint if it has one."""
        self.search.stages.finish(run)
        if run.skipped_records:
            say(f"{self.search.job.spec.id}: {run.skipped_records} gradients were not finite")


@dataclass(frozen=True)
class Setting:
    """One point of an arm's grid.

    facts: its entries of the row. stated: the row's claims and guarantees for one reported run.
    score: trains anew; the accuracy of the last iterate, and the steps taken.
    """

    facts: dict[str, Any]
    stated: Callable[[], dict[str, Any]]
    score: Callable[[Trial], tuple[float, Ran]]


class Search(Generic[A, R]):
    """The rows of a job, one per arm, in the order of `arms`, and a ledger for each.

    The job's fields must have runs, tuning_runs, noise_source, delta and accountant.

    arm_facts: an arm's entries of its row; settings_of: its grid. row_of: converts entries to a row
    of the job's class. named: a row in words. in_ledger: further arguments of a row's `ledger`.
    tuned_before: indices of the rows whose trials chose a part of an arm's settings.
    """

    def __init__(
        self,
        job: Job,
        arms: Sequence[A],
        arm_facts: Callable[[A], dict[str, Any]],
        settings_of: Callable[[A], Sequence[Setting]],
        *,
        row_of: Callable[[dict[str, Any]], R],
        named: Callable[[R], str],
        in_ledger: Callable[[R], dict[str, Any]] = lambda row: {},
        tuned_before: Callable[[A], Sequence[int]] = lambda arm: (),
    ):
        self.job, self.arms = job, arms
        self.arm_facts, self.settings_of, self.row_of = arm_facts, settings_of, row_of
        self.named, self.in_ledger, self.tuned_before = named, in_ledger, tuned_before
        self.noise = Noise(job.spec.digest, job.fields.noise_source)
        self.stages = Stages(job, self.noise)
        self.rows: list[R] = []
        self.ledgers: list[dict[str, Any]] = []
        # For each row the facts of its trials (`Ran.facts`).
        self.trials: list[list[dict[str, Any]]] = []

    def run(self) -> list[R]:
        """The rows of all arms; also sets `rows`, `ledgers` and `trials`."""
        with Progress(len(self.arms), self.job.spec.id) as progress:
            for number, arm in enumerate(self.arms):
                stage = self.stages.result(f"arm-{number}", partial(self._arm, number, arm))
                self.rows.append(self.row_of(stage["row"]))
                self.ledgers.append(stage["ledger"])
                self.trials.append(stage["trials"])
                progress.advance(self.rows[-1].method)
        return self.rows

    def _arm(self, number: int, arm: A) -> dict[str, Any]:
        """Row, ledger and trials of an arm as JSON values."""
        fields, settings = self.job.fields, list(self.settings_of(arm))
        SETTINGS.check("settings of an arm", len(settings))

        def score(setting: int, part: str, first: int, run: int) -> tuple[float, dict[str, Any]]:
            block = 0 if part == "test" else 1 + setting
            repetition = (number * MAX_RUNS_PER_SETTING + block) * MAX_RUNS_PER_SETTING + run
            trial = Trial(self, part, first + run, repetition)

            def train() -> dict[str, Any]:
                value, ran = settings[setting].score(trial)
                return {"score": value, "ran": ran.facts()}

            stage = self.stages.result(f"trial-{trial.repetition}", train)
            return stage["score"], stage["ran"]

        scores = [
            [score(setting, "validation", fields.runs, run) for run in range(fields.tuning_runs)]
            for setting in range(len(settings))
        ]
        tuned = [np.mean([value for value, _ in trials]) for trials in scores]
        best = int(np.argmax(tuned))
        tests = [score(best, "test", 0, run) for run in range(fields.runs)]
        trials = [facts for of_setting in scores for _, facts in of_setting]
        before = sorted(set(self.tuned_before(arm)))
        tried = [*(facts for row in before for facts in self.trials[row]), *trials]
        reported = [Ran.of(facts) for _, facts in tests]
        stated = settings[best].stated()
        accounts = {
            "delta": fields.delta,
            "relation": stated["relation"] or default_relation(reported[0].phases),
            "accountant": fields.accountant,
        }
        tuning = tuning_of([Ran.of(facts) for facts in tried], reported, **accounts)
        values = {
            **self.arm_facts(arm),
            **settings[best].facts,
            **stated,
            "settings_tried": len(settings),
            "trials": tuning["trials"],
            "with_tuning_epsilon": tuning["epsilon"],
            "all_runs_epsilon": tuning["epsilon_of_all"],
            "validation_accuracy": float(tuned[best]),
            "accuracy": [value for value, _ in tests],
        }
        row = self.row_of(values)
        statement = ledger(reported[0], tuning=tuning, **self.in_ledger(row), **accounts)
        return {"row": values, "ledger": {"arm": self.named(row), **statement}, "trials": trials}


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of right answers; outputs (records, classes)."""
    return float((outputs.argmax(1) == labels).double().mean())
