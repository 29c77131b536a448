"""Arms: what a comparison trains on equal records.

One comparison serves two jobs: `tune` tries every arm at the settings of its grid, and `report`
runs it at those that were chosen. From a spec to a step: the spec's `Arms`; an `Arm` at settings;
`OneRun` of it; the phases of its training (`dpatlas.privacy.phases.TrainingPhase`); and what they
did, for the ledger (`dpatlas.accounting.ledger.Ran`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.accounting.ledger import Ran
from dpatlas.base.progress import say
from dpatlas.base.records import Row
from dpatlas.base.seeds import Noise
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages, WatchedWork
from dpatlas.models.backbone import CHUNK
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.run.deals import Dealt

# An entry of an arm's grid, or the one that was chosen.
Chosen = Mapping[str, Any]


@dataclass(frozen=True)
class OneRun:
    """One run of an arm: what it sees, and where its random numbers come from.

    records: what `Arms.records_of` made of the run's deal. number: of the run; it keys initial
    weights, which arms share. repetition: keys batches and noise. shared_noise: the name under
    which other arms draw the same; None in a trial, whose noise is its own.
    """

    job: Job
    stages: Stages
    noise: Noise
    records: Any
    number: int
    repetition: int
    shared_noise: str | None = None

    @property
    def draws(self) -> dict[str, Any]:
        """The arguments by which a training of the run draws its batches and noise."""
        return {
            "noise": self.noise,
            "repetition": self.repetition,
            "shared_noise": self.shared_noise,
        }

    def finish(
        self,
        training: PrivateTraining | LangevinRun,
        look: Callable[[], Any] = lambda: None,
        at: Sequence[int] = (),
    ) -> list[Any]:
        """Take all steps, from a checkpoint if there is one.

        Returns what `look` gives after each of the nondecreasing numbers of steps `at`, the last of
        which ends the training.
        """
        watched = WatchedWork(training, look, at or [training.steps])
        self.stages.finish(watched)
        if training.skipped_records:
            say(f"{self.job.spec.id}: {training.skipped_records} gradients were not finite")
        return watched.seen


@dataclass(frozen=True)
class Arm:
    """An arm at given settings.

    train: trains anew on the records of a run, however many there are; returns what it measured,
    with `accuracy` on the run's test records, and the steps taken. row: entries of its row of
    `arms`; those without a column there are left out. The row's `relation` is that of the arm's
    guarantee, None without one. theorem: what claims the row's `claimed_epsilon`; None where that
    is the ledger's own.
    """

    train: Callable[[OneRun], tuple[dict[str, Any], Ran]]
    row: Callable[[], Row]
    theorem: str | None = None


@dataclass(frozen=True)
class Arms:
    """The arms that are trained on equal records.

    by_name: each arm at settings of its grid. records_of: what arms see of a deal, made once for
    all of them. mechanism, clip: of all arms, in words. constants: public constants that the
    guarantees depend on. seen: facts about the records of a reported run, as JSON values.
    reported_weights: which iterate of a training is measured, in words.
    """

    by_name: Mapping[str, Callable[[Chosen], Arm]]
    records_of: Callable[[Dealt], Any]
    mechanism: str
    clip: str
    constants: Sequence[str] = ("max_grad_norm",)
    seen: Callable[[Any], dict[str, Any]] = lambda records: {}
    reported_weights: str = "last iterate"


def outputs(model: nn.Module, x: Tensor) -> Tensor:
    """The model's outputs, `CHUNK` records at a time."""
    with torch.no_grad():
        return torch.cat([model(rows) for rows in x.split(CHUNK)])


def accuracy(outputs: Tensor, labels: Tensor) -> float:
    """Share of right answers; outputs (records, classes)."""
    return float((outputs.argmax(1) == labels).double().mean())
