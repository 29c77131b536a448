"""Branches: trainings of a run that begin with the same steps, which are taken once.

Such trainings have records, initial weights, batches and noise in common, so their common steps
give the same bits in each. A stem takes these steps, and each training goes on from it (`after` of
`PrivateTraining`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.accounting.ledger import Ran
from dpatlas.jobs.resume import State, WatchedWork
from dpatlas.privacy.training import PrivateTraining


@dataclass(frozen=True)
class Stem:
    """The steps that several trainings have in common, in one phase.

    weights: number of steps -> the trained parameters after them, by name. ran: what was done.
    """

    weights: Mapping[int, Mapping[str, Tensor]]
    ran: Ran

    def ran_in(self, *steps: int) -> Ran:
        """What the first sum(steps) steps did, as phases of so many steps."""
        (phase,), (bound,), (clip,) = self.ran.phases, self.ran.max_grad_norm, self.ran.clips
        many = len(steps)
        return replace(
            self.ran,
            phases=tuple(replace(phase, steps=count) for count in steps),
            max_grad_norm=(bound,) * many,
            clips=(clip,) * many,
        )


class Growing(WatchedWork):
    """A training of one phase, as a `Work`, whose trained weights are kept after steps `at`."""

    def __init__(self, training: PrivateTraining, at: Sequence[int]):
        super().__init__(training, self._trained, at)
        self.private = training

    @property
    def skipped_records(self) -> int:
        """Number of gradients that were not finite."""
        return self.private.skipped_records

    def result(self) -> dict[str, Any]:
        """The arrays and facts of which `stem_of` makes a stem."""
        return {**self._arrays(), "ran": self.private.ran.facts()}

    def state(self) -> State:
        """The training's state and the weights kept so far."""
        arrays, facts = self.training.state()
        return {**arrays, **self._arrays()}, {"training": facts, "kept": len(self._seen)}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Continue from a state."""
        self.training.restore(arrays, facts["training"])
        kept = _weights(arrays)
        self._seen = [kept[steps] for steps in self.at[: facts["kept"]]]

    def _trained(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.private.trained.items()}

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            f"after/{steps}/{name}": value.cpu().numpy()
            for steps, weights in zip(self.at, self.seen, strict=False)
            for name, value in weights.items()
        }


def stem_of(
    stage: Callable[[Callable[[], dict[str, Any]]], dict[str, Any]],
    finish: Callable[[Growing], None],
    training: Callable[[], PrivateTraining],
    at: Sequence[int],
) -> Stem:
    """The stem of a training of one phase, kept after the increasing numbers of steps `at`.

    stage: the stored result of a stage, or that of the function that it is given. finish: takes all
    steps within the stage. training: makes the training, which takes no step beyond the last of
    `at`.
    """

    def grow() -> dict[str, Any]:
        growing = Growing(training(), at)
        finish(growing)
        return growing.result()

    result = stage(grow)
    return Stem(_weights(result), Ran.of(result["ran"]))


def _weights(arrays: Mapping[str, Any]) -> dict[int, dict[str, Tensor]]:
    weights: dict[int, dict[str, Tensor]] = {}
    for key, value in arrays.items():
        kind, _, rest = key.partition("/")
        if kind == "after":
            steps, _, name = rest.partition("/")
            weights.setdefault(int(steps), {})[name] = torch.from_numpy(value)
    return weights
