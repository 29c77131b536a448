"""Tune every arm on the validation records, then measure it afresh on the test records.

Validation records are held out and treated as public. Test records are looked at by the reported
runs of the best setting alone, at their last iterate. A killed job goes on inside its last run.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from dpatlas.core.guard import integer
from dpatlas.core.progress import Progress, say
from dpatlas.core.seeds import Noise
from dpatlas.experiments.job import Job
from dpatlas.experiments.private_plan import Stated

# Most settings of an arm and runs of a setting: every run has a repetition number of its own.
MOST = 10_000
COUNT = integer(ge=1, lt=MOST)
State = tuple[dict[str, np.ndarray], dict[str, Any]]


class Run(Protocol):
    """A training that can be interrupted after any step; its facts name its `repetition`."""

    steps_done: int
    skipped_records: int

    @property
    def steps(self) -> int:
        """All steps."""

    def step(self) -> None:
        """One more."""

    def state(self) -> State:
        """Arrays and facts from which `restore` goes on to the same bits."""

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state."""


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

    def finish(self, run: Run) -> None:
        """All steps of `run`, from its checkpoint if it has one."""
        stored = self.search.running
        if stored is not None and stored[1]["repetition"] == self.repetition:
            run.restore(*stored)
        while run.steps_done < run.steps:
            run.step()
            if self.search.job.save_due():
                self.search.save(run.state())
        if run.skipped_records:
            say(f"{self.search.job.spec.id}: {run.skipped_records} gradients were not finite")


@dataclass(frozen=True)
class Setting:
    """One point of an arm's grid.

    facts: what a row says of it. stated: what is claimed and guaranteed. score: train afresh;
    accuracy of the last iterate.
    """

    facts: dict[str, Any]
    stated: Callable[[], Stated]
    score: Callable[[Trial], float]


class Search:
    """The rows of a job, one per arm, in the order of `arms`.

    arm_facts: what a row says of an arm; settings_of: its grid.
    """

    def __init__(
        self,
        job: Job,
        arms: Sequence[Hashable],
        arm_facts: Callable[[Any], dict[str, Any]],
        settings_of: Callable[[Any], Sequence[Setting]],
    ):
        fields = job.spec.fields
        for name in ("runs", "tuning_runs"):
            COUNT.check(name, fields[name])
        self.job, self.arms = job, arms
        self.arm_facts, self.settings_of = arm_facts, settings_of
        self.runs, self.tuning_runs = fields["runs"], fields["tuning_runs"]
        self.noise = Noise(job.spec.digest, fields["noise_source"])
        self.rows: list[dict[str, Any]] = []
        self.scores: list[float] = []
        self.running: State | None = None

    def run(self) -> list[dict[str, Any]]:
        """Every arm's facts and best setting, settings tried, and the accuracies seen."""
        self._restore()
        with Progress(len(self.arms), self.job.spec.id) as progress:
            progress.advance(units=len(self.rows))
            for number in range(len(self.rows), len(self.arms)):
                self.rows.append(self._row(number))
                self.scores = []
                progress.advance(str(self.rows[-1]["method"]))
        return self.rows

    def save(self, running: State | None = None) -> None:
        """A checkpoint of finished rows, of the scores of this one, and of the run going on."""
        arrays, facts = running or ({}, None)
        content = {"rows": self.rows, "scores": self.scores, "running": facts}
        self.job.save("search", arrays, content, self.noise)

    def _restore(self) -> None:
        stored = self.job.restored("search", self.noise)
        if stored is None:
            return
        arrays, facts = stored
        self.rows, self.scores = facts["rows"], facts["scores"]
        if facts["running"] is not None:
            self.running = arrays, facts["running"]

    def _row(self, arm: int) -> dict[str, Any]:
        settings = list(self.settings_of(self.arms[arm]))
        COUNT.check("settings of an arm", len(settings))
        known = iter(self.scores.copy())

        def score(setting: int, part: str, first: int, run: int) -> float:
            """From the checkpoint if the run was finished before."""
            block = 0 if part == "test" else 1 + setting
            trial = Trial(self, part, first + run, (arm * MOST + block) * MOST + run)
            found = next(known, None)
            if found is None:
                found = settings[setting].score(trial)
                self.running = None
                self.scores.append(found)
            return found

        tuned = [
            np.mean([score(place, "validation", self.runs, run) for run in range(self.tuning_runs)])
            for place in range(len(settings))
        ]
        best = int(np.argmax(tuned))
        found = [score(best, "test", 0, run) for run in range(self.runs)]
        return {
            **self.arm_facts(self.arms[arm]),
            **settings[best].facts,
            **settings[best].stated().as_row(),
            "settings_tried": len(settings),
            "validation_accuracy": float(tuned[best]),
            "accuracy": found,
        }


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of right answers; outputs (records, classes)."""
    return float((outputs.argmax(1) == labels).double().mean())
