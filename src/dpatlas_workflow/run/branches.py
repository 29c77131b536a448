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
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.run.arms import OneRun


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


def stem_of(
    one: OneRun,
    stage: Callable[[Callable[[], dict[str, Any]]], dict[str, Any]],
    training: Callable[[], PrivateTraining],
    at: Sequence[int],
) -> Stem:
    """The stem of a training of one phase, kept after the increasing numbers of steps `at`.

    stage: the stored result of a stage, or that of the function that it is given. training: makes
    the training, which takes no step beyond the last of `at`.
    """

    def grow() -> dict[str, Any]:
        private = training()

        def weights() -> dict[str, np.ndarray]:
            return {
                name: each.detach().cpu().numpy().copy() for name, each in private.trained.items()
            }

        arrays = {
            f"{steps}/{name}": array
            for steps, kept in zip(at, one.finish(private, weights, at), strict=True)
            for name, array in kept.items()
        }
        return {**arrays, "ran": private.ran.facts()}

    result = dict(stage(grow))
    ran = Ran.of(result.pop("ran"))
    weights: dict[int, dict[str, Tensor]] = {}
    for key, array in result.items():
        steps, _, name = key.partition("/")
        weights.setdefault(int(steps), {})[name] = torch.from_numpy(array)
    return Stem(weights, ran)
