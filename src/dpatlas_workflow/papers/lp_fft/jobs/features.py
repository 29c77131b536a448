"""lp_fft: features during private fine-tuning, which the jobs feature_quality and umap evaluate.

Features are the inputs of the head. Their quality is the accuracy of nearest neighbours: a task's
known records vote on the classes of its queries. Evaluations at several steps see intermediate
iterates. The ledger's epsilon therefore composes all steps, which covers the release of every
iterate.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.ledger import Ran, ledger
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.progress import Progress
from dpatlas.base.seeds import Noise
from dpatlas.data.prepared import Prepared
from dpatlas.jobs.job import Job
from dpatlas.jobs.resume import Stages
from dpatlas.models.backbone import CHUNK
from dpatlas.models.network import Network
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft.jobs.networks import BackboneNetworks, Seen
from dpatlas_workflow.run.arms import OneRun, accuracy, outputs
from dpatlas_workflow.run.branches import Stem, stem_of
from dpatlas_workflow.run.deals import Deals
from dpatlas_workflow.run.private_records import identity, load_backbone

SHARED = "the trainings of one run"
# The shipped rates and steps were chosen by earlier curves on the same data set (claims.yaml).
GIVEN = {
    "what": "nothing in this job: its settings are given, and it does not know on which records "
    "they were chosen",
    "cost": "not counted",
}
# Queries whose distances to all known records are in memory at a time.
ROWS = 512
# The curves themselves use private records, which vote as nearest neighbours.
RELEASED = "every iterate of one run, without nearest neighbours, which look the records up,"


@dataclass(frozen=True)
class Task:
    """Known records (n, pixels) with labels (n,) int64, and queries with their true classes."""

    known: Tensor
    labels: Tensor
    queries: Tensor
    truth: Tensor

    def features(self, network: Network) -> "Task":
        """The same records as their features by the network."""
        known, queries = (features_of(network, x) for x in (self.known, self.queries))
        return replace(self, known=known, queries=queries)

    def quality(self, neighbours: int) -> float:
        """Accuracy of nearest neighbours among these records."""
        return knn_accuracy(self.known, self.labels, self.queries, self.truth, neighbours)

    def accuracy(self, head: nn.Module) -> float:
        """Accuracy of a head whose inputs these records are."""
        return accuracy(outputs(head, self.queries), self.truth)


def public_task(data: Prepared, device: str, known: int, queries: int) -> Task:
    """The first `known` training records as known ones, the first `queries` test records."""
    train = data.x_train[:known], data.y_train[:known]
    test = data.x_test[:queries], data.y_test[:queries]
    return Task(*(torch.from_numpy(array).to(device) for array in (*train, *test)))


def private_task(seen: Seen) -> Task:
    """The training records of a run as known ones and its test records as queries."""
    x, labels = seen.x, seen.labels
    return Task(x["train"], labels["train"], x["test"], labels["test"])


def features_of(network: Network, x: Tensor) -> Tensor:
    """Inputs of the head for x, (records, features)."""
    with torch.no_grad():
        return torch.cat([network.features(rows) for rows in x.split(CHUNK)])


def finite(features: Tensor) -> Tensor:
    """The features in float64; values that are not finite, which have no distance, become 0."""
    return features.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def knn_accuracy(
    known: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, neighbours: int
) -> float:
    """Share of `queries` (m, d) whose nearest neighbours in `known` (n, d) vote for their class.

    labels (n,), truth (m,) int64. All that are as near as the last of the `neighbours` vote; the
    lowest of equally many votes wins.
    """
    known, queries = finite(known), finite(queries)
    squares, classes = known.square().sum(1), one_hot(labels).double()
    votes = []
    for rows in queries.split(ROWS):
        # Less |row|^2, which is the same for all known records.
        distances = torch.addmm(squares, rows, known.T, alpha=-2)
        last = distances.topk(neighbours, largest=False).values[:, -1:]
        votes.append((distances <= last).double() @ classes)
    return accuracy(torch.cat(votes), truth)


class Curves:
    """The private trainings of a job, in a fixed order, each evaluated at several of its steps.

    The trainings of a run share its batches and noise, so only one of them may be released. ran:
    for the ledger, what every training did, in their order. progress: to be set before the first.
    """

    progress: Progress

    def __init__(self, job: Job):
        self.job, self.fields = job, job.fields
        self.deals, self.backbone = Deals(job), load_backbone(job)
        self.noise = Noise(job.spec.digest, self.fields.noise_source)
        self.stages = Stages(job, self.noise)
        self.ran: list[Ran] = []
        self._stems = 0

    def check(self, *noises: tuple[float, int]) -> None:
        """Raise InputError, before anything is trained, for noise that no accountant covers.

        noises: a training, as noise multipliers and numbers of steps.
        """
        fields, sampler = self.fields, Poisson(self.deals.sizes["train"], self.fields.batch)
        phases = [Phase(sampler, noise, steps) for noise, steps in noises]
        guarantee(phases, fields.delta, fields.relation, fields.accountant)

    def runs(self) -> Iterator[OneRun]:
        """The runs of the job, with their records."""
        for number in self.fields.run_numbers:
            seen = Seen(self.deals.of(number), self.backbone, self.job.device)
            yield OneRun(self.job, self.stages, self.noise, seen, number, number, SHARED)

    def networks(self, head_scale: float) -> BackboneNetworks:
        """The backbone with a random head of this scale."""
        scales = {"head_scale": head_scale, "feature_scale": self.fields.feature_scale}
        return BackboneNetworks(self.job, self.backbone, **scales)

    def probe(
        self,
        one: OneRun,
        frozen: Task,
        networks: BackboneNetworks,
        phase: TrainingPhase,
        at: Sequence[int],
    ) -> Stem:
        """LP on the features of the frozen backbone, kept after steps `at`."""

        def training() -> PrivateTraining:
            head = networks.fresh_head(one.number)
            return PrivateTraining(head, [phase], frozen.known, frozen.labels, **one.draws)

        name, self._stems = f"stem-{self._stems}", self._stems + 1
        return stem_of(one, partial(self.stages.result, name), training, at)

    def tune(
        self,
        one: OneRun,
        images: Task,
        networks: BackboneNetworks,
        phase: TrainingPhase,
        at: Sequence[int],
        look: Callable[[Network, bool], dict[str, Any]],
        probed: tuple[Stem, int] | None = None,
    ) -> list[dict[str, Any]]:
        """FFT, from the end of so many steps of LP if any, and what is seen after its steps `at`.

        look: takes the network, and whether its features may have moved.
        """

        def train() -> dict[str, Any]:
            network, after = networks.fresh(one.number), None
            if probed is not None:
                stem, before = probed
                network.load_state_dict(stem.weights[before], strict=False)
                after = stem.ran_in(before)
            training = PrivateTraining(
                network, [phase], images.known, images.labels, after=after, **one.draws
            )
            seen = one.finish(training, lambda: look(network, training.steps_done > 0), at)
            return {"seen": seen, "ran": training.ran.facts()}

        result = self.stages.result(f"training-{len(self.ran)}", train)
        self.ran.append(Ran.of(result["ran"]))
        self.progress.advance()
        return result["seen"]

    def ledger(self, ran: Ran) -> dict[str, Any]:
        """The ledger of a training whose iterates are all evaluated."""
        return ledger(
            ran,
            delta=self.fields.delta,
            relation=self.fields.relation,
            accountant=self.fields.accountant,
            chosen_on_private_data=[GIVEN],
            released=RELEASED,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The records and the backbone, for a record."""
        return {
            "n_train": self.deals.sizes["train"],
            "n_test": self.deals.sizes["test"],
            "backbone": {**identity(self.backbone), "architecture": self.backbone.architecture},
        }
