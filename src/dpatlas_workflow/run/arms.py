"""Arms: what a comparison trains on equal records, and how each arm is trained at given settings.

One description of the arms serves two jobs: the tuning tries every arm's grid (`jobs.tuning`), and
the reported runs take the settings that it chose (`jobs.reports`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from dpatlas.accounting.ledger import Ran
from dpatlas.base.progress import say
from dpatlas.base.seeds import Noise
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages, Work
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.run.deals import Dealt

# An entry of a grid, or what was chosen of it.
Chosen = Mapping[str, Any]
A = TypeVar("A")
D = TypeVar("D")


class CountedWork(Work, Protocol):
    """A training that counts the gradients that were not finite."""

    @property
    def skipped_records(self) -> int:
        """Number of gradients that were not finite."""


@dataclass(frozen=True)
class OneRun(Generic[D]):
    """One run of an arm: what it sees, and where its random numbers come from.

    records: what `Arms.records_of` made of the run's deal. number: of the run; it keys initial
    weights, which arms share. repetition: keys batches and noise. shared_noise: the name under
    which other arms draw the same; None in a trial, whose noise is its own.
    """

    job: Job
    stages: Stages
    noise: Noise
    records: D
    number: int
    repetition: int
    shared_noise: str | None = None

    def train(
        self,
        model: nn.Module,
        phases: Sequence[TrainingPhase],
        x: torch.Tensor,
        labels: torch.Tensor,
        **more: Any,
    ) -> PrivateTraining:
        """The completed private training of the model; `more`: arguments of `PrivateTraining`."""
        training = PrivateTraining(model, phases, x, labels, **{**self.draws, **more})
        self.finish(training)
        return training

    @property
    def draws(self) -> dict[str, Any]:
        """The arguments by which a training of the run draws its batches and noise."""
        names = ("noise", "repetition", "shared_noise")
        return {name: getattr(self, name) for name in names}

    def finish(self, work: CountedWork) -> None:
        """Take all steps of a training, from its checkpoint if it has one."""
        self.stages.finish(work)
        if work.skipped_records:
            say(f"{self.job.spec.id}: {work.skipped_records} gradients were not finite")


@dataclass(frozen=True)
class ArmSetting(Generic[D]):
    """An arm at given settings.

    facts: its entries of a row. stated: claims and guarantees for one reported run, with its
    `relation`. train: trains anew on the run's records, however many there are, and returns what it
    measured, with `accuracy` on the run's test records, and the steps taken.
    """

    facts: Mapping[str, Any]
    stated: Callable[[], Mapping[str, Any]]
    train: Callable[[OneRun[D]], tuple[dict[str, Any], Ran]]


@dataclass(frozen=True)
class Arms(Generic[A, D]):
    """The arms of a comparison.

    named: a name for each arm, by which its settings are handed on. records_of: what arms see of a
    deal, made once for all arms. setting_of: the arm at settings of its grid. constants: the public
    constants that the guarantees depend on, as `ledger` takes them. seen: facts about the records
    of a reported run, as JSON values.
    """

    all: Sequence[A]
    named: Callable[[A], str]
    records_of: Callable[[Dealt], D]
    setting_of: Callable[[A, Chosen], ArmSetting[D]]
    constants: Mapping[str, str] | None = None
    seen: Callable[[D], dict[str, Any]] = lambda records: {}


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of right answers; outputs (records, classes)."""
    return float((outputs.argmax(1) == labels).double().mean())
