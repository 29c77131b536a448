"""The stages of a job, of which a killed one loses what it did not save.

A stage finds something by the steps of a work, such as a training, or by stages within it. What
finished stages found is kept until the stage around them is finished, and goes into checkpoints
beside the state of the work that is going on.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dpatlas.core.seeds import Noise
from dpatlas.jobs.job import Job

CHECKPOINT = "stages"
State = tuple[dict[str, np.ndarray], dict[str, Any]]


class Work(Protocol):
    """Steps that can be interrupted after any of them."""

    @property
    def steps_done(self) -> int:
        """Steps taken."""

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
    """What the stages of a job found, by their names from the outermost one on, joined by dots.

    noise: keeps its secret over a restart. Facts go into one checkpoint, which is written after a
    step once `Job.save_due`; a result with arrays has a file of its own, written when it is found.
    """

    def __init__(self, job: Job, noise: Noise | None = None):
        self.job, self.noise = job, noise
        self._finished: dict[str, dict[str, Any]] = {}
        self._running: tuple[str, State] | None = None
        self._open: list[str] = []
        # Stages with files of their own, and those whose outer stage is finished.
        self._filed: set[str] = set()
        self._outdated: set[str] = set()
        stored = job.restored(CHECKPOINT, noise)
        if stored is not None:
            arrays, facts = stored
            self._finished = facts["finished"]
            if facts["running"] is not None:
                path, of_work = facts["running"]
                self._running = path, (arrays, of_work)

    def result(self, name: str, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What the stage `name` found before, or finds now; values are JSON-able, or arrays.

        Names differ among the stages of a stage, and have no dots.
        """
        path = ".".join([*self._open, name])
        if path in self._finished:
            return self._finished[path]
        stored = self.job.restored(path, self.noise)
        if stored is not None:
            self._filed.add(path)
            return stored[1]["facts"] | stored[0]
        self._open.append(name)
        found = find()
        self._open.pop()
        for inside in [each for each in self._finished if each.startswith(f"{path}.")]:
            del self._finished[inside]
        self._outdated |= {each for each in self._filed if each.startswith(f"{path}.")}
        arrays = {key: value for key, value in found.items() if isinstance(value, np.ndarray)}
        if arrays:
            facts = {key: value for key, value in found.items() if key not in arrays}
            self.job.save(path, arrays, {"facts": facts}, self.noise)
            self._filed.add(path)
        else:
            self._finished[path] = found
        return found

    def finish(self, work: Work, after_step: Callable[[], Any] = lambda: None) -> None:
        """All steps of the one work of this stage; from its checkpoint if it was going on there."""
        if self._running is not None and self._running[0] == ".".join(self._open):
            work.restore(*self._running[1])
        self._running = None
        while work.steps_done < work.steps:
            work.step()
            after_step()
            if self.job.save_due():
                self.save(work)

    def save(self, work: Work | None = None) -> None:
        """A checkpoint of what finished stages found and of the work that is going on."""
        running = self._running if work is None else (".".join(self._open), work.state())
        path, (arrays, facts) = running or ("", ({}, {}))
        content = {"finished": self._finished, "running": running and [path, facts]}
        self.job.save(CHECKPOINT, arrays, content, self.noise)
        # Not before: until now the outer stage was finished in no file.
        while self._outdated:
            self.job.checkpoints.drop(self._outdated.pop())


class Watched:
    """A training that is looked at after the numbers of steps `at`, which never fall; a `Work`.

    It ends with the last look. Whoever looks sees every iterate.
    """

    def __init__(self, training: Work, look: Callable[[], Any], at: Sequence[int]):
        self.training, self.look, self.at = training, look, at
        self._seen: list[Any] = []

    @property
    def seen(self) -> list[Any]:
        """What was found so far, in the order of `at`."""
        while self.at[len(self._seen) :][:1] == [self.steps_done]:
            self._seen.append(self.look())
        return self._seen

    @property
    def steps_done(self) -> int:
        """Steps taken."""
        return self.training.steps_done

    @property
    def steps(self) -> int:
        """Up to the last look."""
        return self.at[-1]

    def step(self) -> None:
        """One more, after the looks that are due."""
        _ = self.seen
        self.training.step()

    def state(self) -> State:
        """The training's, and what was seen so far."""
        arrays, facts = self.training.state()
        return arrays, {"training": facts, "seen": self._seen}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state."""
        self.training.restore(arrays, facts["training"])
        self._seen = facts["seen"]
