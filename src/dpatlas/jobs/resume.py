"""Stages of a job, whose results survive a kill through checkpoints.

A stage computes a result by the steps of a work, such as a training, or by stages within it. The
results of finished stages are stored until the enclosing stage is finished; checkpoints hold them
and the state of the current work.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dpatlas.base.seeds import Noise
from dpatlas.jobs.job import Job

CHECKPOINT = "stages"
State = tuple[dict[str, np.ndarray], dict[str, Any]]


class Work(Protocol):
    """A sequence of steps that can be interrupted after any step."""

    @property
    def steps_done(self) -> int:
        """Number of steps taken."""

    @property
    def steps(self) -> int:
        """Number of all steps."""

    def step(self) -> None:
        """Take the next step."""

    def state(self) -> State:
        """Arrays and facts from which `restore` continues to the same bits."""

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Continue from a state."""


class Stages:
    """Results of the stages of a job, by their names from the outermost stage on, joined by dots.

    noise: its secret is stored, so that it survives a restart. Results without arrays are stored in
    one checkpoint, which is written after a step when `Job.save_due`; a result with arrays has its
    own file, written as soon as it is computed.
    """

    def __init__(self, job: Job, noise: Noise | None = None):
        self.job, self.noise = job, noise
        self._finished: dict[str, dict[str, Any]] = {}
        self._running: tuple[str, State] | None = None
        self._open: list[str] = []
        # Stages with their own file, and those of them whose enclosing stage is finished.
        self._filed: set[str] = set()
        self._outdated: set[str] = set()
        stored = job.restored(CHECKPOINT, noise)
        if stored is not None:
            arrays, facts = stored
            self._finished = facts["finished"]
            if facts["running"] is not None:
                path, of_work = facts["running"]
                self._running = path, (arrays, of_work)

    def result(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The stored result of the stage `name`, or that of `compute`: JSON values and arrays.

        Names are unique among the stages of a stage, and contain no dots.
        """
        path = ".".join([*self._open, name])
        if path in self._finished:
            return self._finished[path]
        stored = self.job.restored(path, self.noise)
        if stored is not None:
            self._filed.add(path)
            return stored[1]["facts"] | stored[0]
        self._open.append(name)
        result = compute()
        self._open.pop()
        for inner in [stage for stage in self._finished if stage.startswith(f"{path}.")]:
            del self._finished[inner]
        self._outdated |= {stage for stage in self._filed if stage.startswith(f"{path}.")}
        arrays = {key: value for key, value in result.items() if isinstance(value, np.ndarray)}
        if arrays:
            facts = {key: value for key, value in result.items() if key not in arrays}
            if self.noise is not None and self.noise.secret is not None:
                # The file has the secret: results that were computed with it must not be lost.
                self.save()
            self.job.save(path, arrays, {"facts": facts}, self.noise)
            self._filed.add(path)
        else:
            self._finished[path] = result
        return result

    def shared(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """`result` of a stage beside the open one: for all stages of the one around both."""
        inner = self._open.pop()
        result = self.result(name, compute)
        self._open.append(inner)
        return result

    def finish(self, work: Work, after_step: Callable[[], Any] = lambda: None) -> None:
        """Take all steps of this stage's single work, from its checkpoint if there is one."""
        if self._running is not None and self._running[0] == ".".join(self._open):
            work.restore(*self._running[1])
        self._running = None
        while work.steps_done < work.steps:
            work.step()
            after_step()
            if self.job.save_due():
                self.save(work)

    def save(self, work: Work | None = None) -> None:
        """Write a checkpoint: results of finished stages and the state of the current work."""
        running = self._running if work is None else (".".join(self._open), work.state())
        path, (arrays, facts) = running or ("", ({}, {}))
        content = {"finished": self._finished, "running": running and [path, facts]}
        self.job.save(CHECKPOINT, arrays, content, self.noise)
        # Not earlier: only now does a file hold the result of the enclosing stage.
        while self._outdated:
            self.job.checkpoints.drop(self._outdated.pop())


class WatchedWork:
    """A training, as a `Work`, that is observed by `look` after given numbers of steps.

    look: gives JSON values, or a dict of them and of arrays. at: nondecreasing numbers of steps;
    the training ends with the last of them.
    """

    def __init__(self, training: Work, look: Callable[[], Any], at: Sequence[int]):
        self.training, self.look, self.at = training, look, at
        self._seen: list[Any] = []

    @property
    def seen(self) -> list[Any]:
        """The results of `look` so far, in the order of `at`."""
        while self.at[len(self._seen) :][:1] == [self.steps_done]:
            self._seen.append(self.look())
        return self._seen

    @property
    def steps_done(self) -> int:
        """Number of steps taken."""
        return self.training.steps_done

    @property
    def steps(self) -> int:
        """Number of steps up to the last observation."""
        return self.at[-1]

    def step(self) -> None:
        """Take the next step, after the observations that are due."""
        _ = self.seen
        self.training.step()

    def state(self) -> State:
        """The training's state and the observations so far."""
        arrays, facts = self.training.state()
        seen: list[Any] = []
        for number, result in enumerate(self._seen):
            if isinstance(result, dict):
                held = {name: each for name, each in result.items() if isinstance(each, np.ndarray)}
                arrays |= {f"seen/{number}/{name}": array for name, array in held.items()}
                result = {name: each for name, each in result.items() if name not in held}
            seen.append(result)
        return arrays, {"training": facts, "seen": seen}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Continue from a state."""
        self.training.restore(arrays, facts["training"])
        self._seen = facts["seen"]
        for key, array in arrays.items():
            if key.startswith("seen/"):
                _, number, name = key.split("/", 2)
                self._seen[int(number)][name] = array
