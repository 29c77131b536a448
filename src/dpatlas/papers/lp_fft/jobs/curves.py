"""lp_fft: private trainings that are looked at on the way.

Whoever looks sees every iterate, so what is drawn of them is for the reader: a ledger's epsilon
composes all steps and holds for the release of every one of them.
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
    """Runs of a job in a fixed order, each with what was seen of it at some of its steps.

    ran: what every run did, in their order.
    """

    def __init__(self, job: Job, progress: Progress):
        self.progress = progress
        self.noise = Noise(job.spec.digest, job.fields.noise_source)
        self.stages = Stages(job, self.noise)
        self.ran: list[Ran] = []

    def run(
        self, make: Callable[[Noise, int], tuple[PrivateTraining, Look]], at: Sequence[int]
    ) -> list[dict[str, Any]]:
        """What `look` gives after each number of steps in `at`, in the order of these.

        make(noise, repetition) gives a training and its look; no two runs share a repetition.
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
