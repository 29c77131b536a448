"""lp_fft: private trainings that are looked at on the way, and resume in the middle of one.

Whoever looks sees every iterate, so what is drawn of them is for the reader: a ledger's epsilon
composes all steps and holds for the release of every one of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise
from dpatlas.jobs.job import Job
from dpatlas.privacy.ledger import Ran
from dpatlas.privacy.training import PrivateTraining

CHECKPOINT = "curves"
Look = Callable[[], dict[str, Any]]


class Curves:
    """Runs of a job in a fixed order, each with what was seen of it at some of its steps.

    A checkpoint holds finished runs, and of the one going on its state and what was seen so far.
    """

    def __init__(self, job: Job, progress: Progress):
        self.job, self.progress = job, progress
        self.noise = Noise(job.spec.digest, job.spec.fields["noise_source"])
        self.finished: list[list[dict[str, Any]]] = []
        # What every finished run did, in JSON.
        self._ran: list[dict[str, Any]] = []
        self._asked = 0
        self._running: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._restore()

    @property
    def ran(self) -> list[Ran]:
        """What every run did, in their order."""
        return [Ran.of(facts) for facts in self._ran]

    def run(
        self, make: Callable[[Noise, int], tuple[PrivateTraining, Look]], at: Sequence[int]
    ) -> list[dict[str, Any]]:
        """What `look` found after each number of steps in `at`, in the order of these.

        make(noise, repetition) gives a training and its look; no two runs share a repetition.
        """
        number, self._asked = self._asked, self._asked + 1
        if number < len(self.finished):
            self.progress.advance()
            return self.finished[number]
        training, look = make(self.noise, number)
        seen: list[dict[str, Any]] = []
        if self._running is not None:
            arrays, facts = self._running
            training.restore(arrays, facts["training"])
            seen, self._running = facts["seen"], None
        for step in at[len(seen) :]:
            while training.steps_done < step:
                training.step()
                if self.job.save_due():
                    self._save(training, seen)
            seen.append(look())
        self.finished.append(seen)
        self._ran.append(training.ran.facts())
        self.progress.advance()
        return seen

    def _save(self, training: PrivateTraining, seen: list[dict[str, Any]]) -> None:
        arrays, facts = training.state()
        content = {
            "finished": self.finished,
            "ran": self._ran,
            "seen": seen,
            "training": facts,
        }
        self.job.save(CHECKPOINT, arrays, content, self.noise)

    def _restore(self) -> None:
        stored = self.job.restored(CHECKPOINT, self.noise)
        if stored is None:
            return
        arrays, facts = stored
        self.finished, self._ran = facts["finished"], facts["ran"]
        self._running = arrays, facts
