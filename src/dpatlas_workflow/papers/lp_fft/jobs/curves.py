"""lp_fft: private trainings that are evaluated at several of their steps.

Such an evaluation sees intermediate iterates. The ledger's epsilon therefore composes all steps,
which covers the release of every iterate.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dpatlas.accounting.ledger import Ran
from dpatlas.base.progress import Progress
from dpatlas.base.seeds import Noise
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages, WatchedWork
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.run.branches import Stem, stem_of

Look = Callable[[], dict[str, Any]]
SHARED = "the trainings of one run"


class Curves:
    """The private trainings of a job, in a fixed order, each with its evaluations.

    The trainings of a run share its batches and noise, so only one of them may be released. ran:
    for the ledger, what every training did, in their order.
    """

    def __init__(self, job: Job, progress: Progress):
        self.progress = progress
        self.noise = Noise(job.spec.digest, job.fields.noise_source)
        self.stages = Stages(job, self.noise)
        self.ran: list[Ran] = []
        self._stems = 0

    def stem(
        self,
        number: int,
        make: Callable[[Mapping[str, Any]], PrivateTraining],
        at: Sequence[int],
    ) -> Stem:
        """First steps that several trainings of run `number` have in common, kept after steps `at`.

        make: as in `run`, but returns the training alone.
        """
        name, self._stems = f"stem-{self._stems}", self._stems + 1
        stage = partial(self.stages.result, name)
        return stem_of(stage, self.stages.finish, lambda: make(self._draws(number)), at)

    def run(
        self,
        number: int,
        make: Callable[[Mapping[str, Any]], tuple[PrivateTraining, Look]],
        at: Sequence[int],
    ) -> list[dict[str, Any]]:
        """Train once in run `number` and return what `look` gives after each number of steps.

        make(draws) returns a training and its `look`; draws: the arguments by which the training
        draws its batches and noise. at: numbers of steps of that training.
        """

        def train() -> dict[str, Any]:
            training, look = make(self._draws(number))
            watched = WatchedWork(training, look, at)
            self.stages.finish(watched)
            return {"seen": watched.seen, "ran": training.ran.facts()}

        run = self.stages.result(f"training-{len(self.ran)}", train)
        self.ran.append(Ran.of(run["ran"]))
        self.progress.advance()
        return run["seen"]

    def _draws(self, number: int) -> dict[str, Any]:
        return {"noise": self.noise, "repetition": number, "shared_noise": SHARED}
