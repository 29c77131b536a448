"""max_information: a job as rows of stages, of which a killed one loses what it did not save.

A stage is a training or a count of errors. What finished stages found is kept until the row is
done, and goes into the checkpoint beside the state of the stage that is running.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise
from dpatlas.jobs.job import Job

CHECKPOINT = "stages"
State = tuple[dict[str, np.ndarray], dict[str, Any]]


class Work(Protocol):
    """Steps that can be interrupted after any of them."""

    steps_done: int

    @property
    def steps(self) -> int:
        """All steps."""

    def step(self) -> None:
        """One more."""

    def state(self) -> State:
        """Arrays and facts from which `restore` goes on to the same bits."""

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state."""


class Stages:
    """Finished rows, finished stages of the row that is being made, and the job's checkpoints.

    `noise` keys what is private by `root`, its secret kept over a restart. Progress counts steps
    of stages that are `counted`.
    """

    def __init__(self, job: Job, progress: Progress, root: str):
        self.job, self.progress = job, progress
        self.noise = Noise(root, job.spec.fields["noise_source"])
        self.rows: list[dict[str, Any]] = []
        self.finished: dict[str, State] = {}
        self.running: tuple[str, State] | None = None
        self._restore()

    def result(
        self,
        name: str,
        make: Callable[[], Work],
        outcome: Callable[[Any], State],
        counted: bool = False,
    ) -> State:
        """What stage `name` found: from the checkpoint, or by making and finishing its work."""
        if name not in self.finished:
            work = make()
            if self.running is not None and self.running[0] == name:
                work.restore(*self.running[1])
            self.running = None
            while work.steps_done < work.steps:
                work.step()
                self.progress.advance(name, units=int(counted))
                if self.job.save_due():
                    self.save((name, work.state()))
            self.finished[name] = outcome(work)
        return self.finished[name]

    def end_row(self, row: dict[str, Any], forget: Callable[[str], bool]) -> None:
        """Note a row; drop the stages whose names `forget` picks."""
        self.rows.append(row)
        self.finished = {name: state for name, state in self.finished.items() if not forget(name)}

    def save(self, running: tuple[str, State] | None = None) -> None:
        """A checkpoint of everything."""
        states = dict(self.finished)
        if running is not None:
            states["running"] = running[1]
        arrays = {
            f"{name}/{key}": value
            for name, state in states.items()
            for key, value in state[0].items()
        }
        facts = {
            "rows": self.rows,
            "facts": {name: state[1] for name, state in states.items()},
            "running": running and running[0],
        }
        self.job.save(CHECKPOINT, arrays, facts, self.noise)

    def _restore(self) -> None:
        stored = self.job.restored(CHECKPOINT, self.noise)
        if stored is None:
            return
        arrays, facts = stored
        self.rows = facts["rows"]
        states: dict[str, State] = {name: ({}, found) for name, found in facts["facts"].items()}
        for path, value in arrays.items():
            name, key = path.split("/", 1)
            states[name][0][key] = value
        if facts["running"] is not None:
            self.running = facts["running"], states.pop("running")
        self.finished = states
