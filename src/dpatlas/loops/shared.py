"""What is handed to a loop, and to the engine in its place."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset

from dpatlas.privacy.training import PrivateTraining


class Items(Dataset[Any]):
    """`of(dataset[i])` as the input of record i, without a target.

    It has the attributes of the dataset, by which the engine knows records again and sees copies of
    them in the network.
    """

    def __init__(self, dataset: Any, of: Callable[[Any], Any]):
        vars(self).update(getattr(dataset, "__dict__", {}))
        self.items_of, self.item_of = dataset, of

    def __len__(self) -> int:
        return len(self.items_of)

    def __getitem__(self, index: int) -> tuple[Any, None]:
        return self.item_of(self.items_of[index]), None


class PrivateSteps(torch.optim.Optimizer):
    """An optimizer for a loop: each step of it is one of the training, which needs no gradients."""

    def __init__(self, private: PrivateTraining):
        super().__init__(list(private.trained.values()), {"lr": private.phases[0].lr})
        self.private = private

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take it; `lr` is then the step size that it had."""
        private = self.private
        number, phase = private.phase_at(private.steps_done)
        within = private.steps_done - sum(each.steps for each in private.phases[:number])
        private.step()
        self.param_groups[0]["lr"] = phase.step_size(phase.lr, within)
