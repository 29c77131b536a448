"""lp_fft: private trainings that are evaluated at several of their steps.

Such an evaluation sees intermediate iterates. The ledger's epsilon therefore composes all steps,
which covers the release of every iterate.
"""

from collections.abc import Callable, Sequence
from typing import Any

from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages, Watched
from dpatlas.privacy.ledger import Ran
from dpatlas.privacy.training import PrivateTraining

Look = Callable[[], dict[str, Any]]


class Curves:
    """The private trainings of a job, in a fixed order, each with its evaluations.

    ran: for the ledger, what every training did, in their order.
    """

    def __init__(self, job: Job, progress: Progress):
        self.progress = progress
        self.noise = Noise(job.spec.digest, job.fields.noise_source)
        self.stages = Stages(job, self.noise)
        self.ran: list[Ran] = []

    def run(
        self, make: Callable[[Noise, int], tuple[PrivateTraining, Look]], at: Sequence[int]
    ) -> list[dict[str, Any]]:
        """Train once and return what `look` gives after each number of steps in `at`.

        make(noise, repetition) returns a training and its `look`; repetitions are never reused.
        """
        number = len(self.ran)

        def train() -> dict[str, Any]:
            training, look = make(self.noise, number)
            watched = Watched(training, look, at)
            self.stages.finish(watched)
            return {"seen": watched.seen, "ran": training.ran.facts()}

        run = self.stages.result(f"run-{number}", train)
        self.ran.append(Ran.of(run["ran"]))
        self.progress.advance()
        return run["seen"]
