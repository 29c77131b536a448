"""lp_fft: quality of the features during private training (Fig. 2 left, Fig. 7).

FFT and LP-FFT at equal budget, for every head scale and learning rate. Quality is the accuracy of
nearest neighbours on the features, on the private and on the pre-training task.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

from torch import nn

from dpatlas.accounting.guarantees import Phase
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.guard import integer
from dpatlas.base.progress import Progress
from dpatlas.data.prepared import Prepared
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.backbone import Backbone
from dpatlas.models.network import Network
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft.jobs.curves import Curves, Look
from dpatlas_workflow.papers.lp_fft.jobs.features import (
    FeaturePhase,
    Task,
    backbone_used,
    check_accountant,
    ledger_of,
    private_task,
    public_task,
    training_of,
)
from dpatlas_workflow.papers.lp_fft.jobs.networks import BackboneNetworks, Seen, public_images
from dpatlas_workflow.papers.lp_fft.records.feature_quality import RECORD, FeatureQualitySpec
from dpatlas_workflow.papers.lp_fft.records.private import FULL, HEAD
from dpatlas_workflow.run.branches import Stem
from dpatlas_workflow.run.deals import Deals
from dpatlas_workflow.run.private_records import load_backbone

COMPARED = ("fft", "lp-fft")
# Head scale, learning rate of FFT and strategy.
Condition = tuple[float, float, str]


def feature_quality(job: Job) -> Outcome:
    """Curves by head scale, rate and strategy.

    All curves of a run share its records, random head, batches and noise.

    Raises InputError for more neighbours than records that vote, for public data that the backbone
    was not trained on, and for a mechanism that no accountant covers.
    """
    fields: FeatureQualitySpec = job.fields
    deals = Deals(job)
    backbone = load_backbone(job)
    public = public_images(job, backbone)
    quality = QualityTrainings(job, public, backbone)
    for votes in (deals.sizes["train"], len(quality.public.labels)):
        integer(ge=1, le=votes).check("neighbours", fields.neighbours)
    check_accountant(fields, [Phase(quality.sampler, fields.noise_multiplier, fields.steps)])
    conditions = list(product(fields.head_scales, fields.lrs, COMPARED))
    with Progress(len(conditions) * fields.runs, job.spec.id) as progress:
        curves = Curves(job, progress)
        runs = [quality.run(curves, deals, number, conditions) for number in fields.run_numbers]
    ledgers = [ledger_of(fields, ran) for ran in dict.fromkeys(curves.ran)]
    epsilons = [math.inf if arm["epsilon"] is None else arm["epsilon"] for arm in ledgers]
    weakest = ledgers[epsilons.index(max(epsilons))]
    facts = {
        "n_train": deals.sizes["train"],
        "n_test": deals.sizes["test"],
        "backbone": backbone_used(backbone),
        "public": {name: public.manifest[name] for name in ("name", "sha256")},
        "epsilon": weakest["epsilon"],
    }
    rows = [
        {"head_scale": scale, "lr": lr, "strategy": strategy, "run": number, "step": step, **point}
        for i, (scale, lr, strategy) in enumerate(conditions)
        for number, run in zip(fields.run_numbers, runs, strict=True)
        for step, point in zip(fields.at, run[i], strict=True)
    ]
    return Outcome({**facts, "curves": rows}, {**weakest, "arms": ledgers})


class QualityTrainings:
    """The trainings of a job and the quality of their features on both tasks."""

    def __init__(self, job: Job, public: Prepared, backbone: Backbone):
        self.job, self.backbone = job, backbone
        self.fields: FeatureQualitySpec = job.fields
        self.sampler = Poisson(len(job.prepared.y_train), self.fields.batch)
        known, asked = self.fields.public_known, self.fields.public_asked
        self.public = public_task(public, job.device, known, asked)

    def run(
        self, curves: Curves, deals: Deals, number: int, conditions: Sequence[Condition]
    ) -> list[list[dict[str, float]]]:
        """What every condition of a run gives, at every evaluated step."""
        of_run = QualityRun(
            self, curves, Seen(deals.of(number), self.backbone, self.job.device), number
        )
        return [of_run.train(*condition) for condition in conditions]

    def networks(self, head_scale: float) -> BackboneNetworks:
        """The backbone with heads of this scale."""
        scale = self.fields.feature_scale
        return BackboneNetworks(self.job, self.backbone, head_scale=head_scale, feature_scale=scale)

    def of(self, private: Task, public: Task) -> dict[str, float]:
        """Quality by task, whose records are features."""
        neighbours = self.fields.neighbours
        return {"private": private.quality(neighbours), "public": public.quality(neighbours)}


class QualityRun:
    """The trainings of one run.

    They start with the features of the backbone, which LP leaves unchanged: they are computed and
    evaluated once, and LP, which is the same for every rate of FFT, trains the head on them.
    """

    def __init__(self, quality: QualityTrainings, curves: Curves, seen: Seen, number: int):
        self.of, self.curves, self.number = quality, curves, number
        self.fields = quality.fields
        self.images = private_task(seen)
        self._probed: dict[float, Stem] = {}

    @cached_property
    def frozen(self) -> Task:
        """The features of the backbone."""
        return self.images.features(self._untrained)

    @cached_property
    def initial(self) -> dict[str, float]:
        """Their quality by task."""
        return self.of.of(self.frozen, self.of.public.features(self._untrained))

    @property
    def _untrained(self) -> Network:
        return self.of.networks(1.0).fresh(self.number)

    def train(self, head_scale: float, lr: float, strategy: str) -> list[dict[str, float]]:
        """Quality by task, and accuracy, at every evaluated step of a condition."""
        fields, networks = self.fields, self.of.networks(head_scale)
        if strategy == "fft":
            return self._tune(networks, lr, fields.at)
        if head_scale not in self._probed:
            self._probed[head_scale] = self._probe(networks)
        stem = self._probed[head_scale]
        seen = []
        for step in self._early:
            head = networks.fresh_head(self.number)
            head.load_state_dict(stem.weights[step])
            seen.append(self._at_first(head))
        late = [step - fields.lp_steps for step in fields.at[len(seen) :]]
        # Without a later evaluation FFT takes no step.
        return [*seen, *self._tune(networks, lr, late or [0], stem)[: len(late)]]

    @property
    def _early(self) -> list[int]:
        """Evaluated steps of LP."""
        return [step for step in self.fields.at if step <= self.fields.lp_steps]

    def _probe(self, networks: BackboneNetworks) -> Stem:
        """LP, kept at its evaluated steps and at its end."""
        fields = self.fields
        plan = FeaturePhase(HEAD, fields.lp_steps, fields.noise_multiplier, fields.lp_lr)

        def make(draws: Mapping[str, Any]) -> PrivateTraining:
            head = networks.fresh_head(self.number)
            return training_of(networks, head, self.of.sampler, plan, self.frozen, draws)

        return self.curves.stem(self.number, make, sorted({*self._early, fields.lp_steps}))

    def _tune(
        self, networks: BackboneNetworks, lr: float, at: Sequence[int], stem: Stem | None = None
    ) -> list[dict[str, float]]:
        """FFT, from the end of LP if there is one, and what is seen after its steps `at`."""
        fields, before = self.fields, self.fields.lp_steps if stem else 0
        plan = FeaturePhase(FULL, fields.steps - before, fields.noise_multiplier, lr)

        def make(draws: Mapping[str, Any]) -> tuple[PrivateTraining, Look]:
            network = networks.fresh(self.number)
            after = None
            if stem is not None:
                network.load_state_dict(stem.weights[before], strict=False)
                after = stem.ran
            task = self.images
            training = training_of(networks, network, self.of.sampler, plan, task, draws, after)

            def look() -> dict[str, float]:
                if training.steps_done == 0:
                    return self._at_first(network.head)
                private = task.features(network)
                found = self.of.of(private, self.of.public.features(network))
                return {**found, "accuracy": private.accuracy(network.head)}

            return training, look

        return self.curves.run(self.number, make, at)

    def _at_first(self, head: nn.Module) -> dict[str, float]:
        """What is seen before the features move."""
        return {**self.initial, "accuracy": self.frozen.accuracy(head)}


KIND = Kind(
    feature_quality,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
)
