"""lp_fft: private trainings that are evaluated at several of their steps.

Such an evaluation sees intermediate iterates. The ledger's epsilon therefore composes all steps,
which covers the release of every iterate.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dpatlas.accounting.ledger import Ran
from dpatlas.base.progress import Progress
from dpatlas.base.seeds import Noise
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft.jobs.networks import Seen
from dpatlas_workflow.run.arms import OneRun
from dpatlas_workflow.run.branches import Stem, stem_of

SHARED = "the trainings of one run"


class Curves:
    """The private trainings of a job, in a fixed order, each with its evaluations.

    The trainings of a run share its batches and noise, so only one of them may be released. ran:
    for the ledger, what every training did, in their order.
    """

    def __init__(self, job: Job, progress: Progress):
        self.job, self.progress = job, progress
        self.noise = Noise(job.spec.digest, job.fields.noise_source)
        self.stages = Stages(job, self.noise)
        self.ran: list[Ran] = []
        self._stems = 0

    def of(self, number: int, records: Seen) -> OneRun:
        """Run `number` on these records."""
        return OneRun(self.job, self.stages, self.noise, records, number, number, SHARED)

    def stem(self, one: OneRun, training: Callable[[], PrivateTraining], at: Sequence[int]) -> Stem:
        """First steps that several trainings of a run have in common, kept after steps `at`."""
        name, self._stems = f"stem-{self._stems}", self._stems + 1
        return stem_of(one, partial(self.stages.result, name), training, at)

    def train(
        self,
        one: OneRun,
        make: Callable[[], tuple[PrivateTraining, Callable[[], dict[str, Any]]]],
        at: Sequence[int],
    ) -> list[dict[str, Any]]:
        """What is seen of one training of a run after each number of its steps `at`.

        make: returns the training and what looks at it.
        """

        def train() -> dict[str, Any]:
            training, look = make()
            return {"seen": one.finish(training, look, at), "ran": training.ran.facts()}

        result = self.stages.result(f"training-{len(self.ran)}", train)
        self.ran.append(Ran.of(result["ran"]))
        self.progress.advance()
        return result["seen"]
