"""lp_fft: quality of the features during private training (Fig. 2 left, Fig. 7).

FFT and LP-FFT at equal budget, for every head scale and learning rate. Quality is the accuracy of
nearest neighbours on the features, on the private and on the pre-training task.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product

from torch import nn

from dpatlas.accounting.guarantees import Phase
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.guard import integer
from dpatlas.base.progress import Progress
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.backbone import Backbone
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft.jobs.curves import Curves
from dpatlas_workflow.papers.lp_fft.jobs.features import (
    Task,
    backbone_used,
    check_accountant,
    ledger_of,
    private_task,
    public_task,
)
from dpatlas_workflow.papers.lp_fft.jobs.networks import BackboneNetworks, Seen, public_images
from dpatlas_workflow.papers.lp_fft.records.feature_quality import RECORD, FeatureQualitySpec
from dpatlas_workflow.papers.lp_fft.records.private import FULL, HEAD
from dpatlas_workflow.run.arms import OneRun
from dpatlas_workflow.run.branches import Stem
from dpatlas_workflow.run.deals import Deals
from dpatlas_workflow.run.private_records import load_backbone

COMPARED = ("fft", "lp-fft")


def feature_quality(job: Job) -> Outcome:
    """Curves by head scale, rate and strategy.

    All curves of a run share its records, random head, batches and noise.

    Raises InputError for more neighbours than records that vote, for public data that the backbone
    was not trained on, and for a mechanism that no accountant covers.
    """
    fields: FeatureQualitySpec = job.fields
    deals = Deals(job)
    backbone = load_backbone(job)
    images = public_images(job, backbone)
    sampler = Poisson(deals.sizes["train"], fields.batch)
    public = public_task(images, job.device, fields.public_known, fields.public_asked)
    for votes in (deals.sizes["train"], len(public.labels)):
        integer(ge=1, le=votes).check("neighbours", fields.neighbours)
    check_accountant(fields, [Phase(sampler, fields.noise_multiplier, fields.steps)])
    conditions = list(product(fields.head_scales, fields.lrs, COMPARED))
    with Progress(len(conditions) * fields.runs, job.spec.id) as progress:
        curves = Curves(job, progress)
        runs = []
        for number in fields.run_numbers:
            seen = Seen(deals.of(number), backbone, job.device)
            quality = QualityRun(backbone, public, curves, curves.of(number, seen))
            runs.append([quality.train(*condition) for condition in conditions])
    ledgers = [ledger_of(fields, ran) for ran in dict.fromkeys(curves.ran)]
    epsilons = [math.inf if arm["epsilon"] is None else arm["epsilon"] for arm in ledgers]
    weakest = ledgers[epsilons.index(max(epsilons))]
    facts = {
        "n_train": deals.sizes["train"],
        "n_test": deals.sizes["test"],
        "backbone": backbone_used(backbone),
        "public": {name: images.manifest[name] for name in ("name", "sha256")},
        "epsilon": weakest["epsilon"],
    }
    rows = [
        {"head_scale": scale, "lr": lr, "strategy": strategy, "run": number, "step": step, **point}
        for i, (scale, lr, strategy) in enumerate(conditions)
        for number, run in zip(fields.run_numbers, runs, strict=True)
        for step, point in zip(fields.at, run[i], strict=True)
    ]
    return Outcome({**facts, "curves": rows}, {**weakest, "arms": ledgers})


class QualityRun:
    """The trainings of one run, and the quality of their features on both tasks.

    They start with the features of the backbone, which LP leaves unchanged: they are computed and
    evaluated once, and LP, which is the same for every rate of FFT, trains the head on them.
    """

    def __init__(self, backbone: Backbone, public: Task, curves: Curves, one: OneRun):
        self.backbone, self.public, self.curves, self.one = backbone, public, curves, one
        self.fields: FeatureQualitySpec = one.job.fields
        self.images = private_task(one.records)
        self._probed: dict[float, Stem] = {}

    def _networks(self, head_scale: float) -> BackboneNetworks:
        scale = self.fields.feature_scale
        job = self.one.job
        return BackboneNetworks(job, self.backbone, head_scale=head_scale, feature_scale=scale)

    def _quality(self, private: Task, public: Task) -> dict[str, float]:
        """Quality by task, whose records are features."""
        neighbours = self.fields.neighbours
        return {"private": private.quality(neighbours), "public": public.quality(neighbours)}

    @cached_property
    def _frozen(self) -> Task:
        """The features of the backbone."""
        return self.images.features(self._networks(1.0).fresh(self.one.number))

    @cached_property
    def _initial(self) -> dict[str, float]:
        """Their quality by task."""
        untrained = self._networks(1.0).fresh(self.one.number)
        return self._quality(self._frozen, self.public.features(untrained))

    def _at_first(self, head: nn.Module) -> dict[str, float]:
        """What is seen before the features move."""
        return {**self._initial, "accuracy": self._frozen.accuracy(head)}

    def train(self, head_scale: float, lr: float, strategy: str) -> list[dict[str, float]]:
        """Quality by task, and accuracy, at every evaluated step.

        lr: of FFT, alone or after LP.
        """
        fields, networks = self.fields, self._networks(head_scale)
        if strategy == "fft":
            return self._tune(networks, lr, fields.at)
        early = [step for step in fields.at if step <= fields.lp_steps]
        if head_scale not in self._probed:
            self._probed[head_scale] = self._probe(networks, sorted({*early, fields.lp_steps}))
        stem = self._probed[head_scale]
        seen = []
        for step in early:
            head = networks.fresh_head(self.one.number)
            head.load_state_dict(stem.weights[step])
            seen.append(self._at_first(head))
        late = [step - fields.lp_steps for step in fields.at[len(seen) :]]
        # Without a later evaluation FFT takes no step.
        return [*seen, *self._tune(networks, lr, late or [0], stem)[: len(late)]]

    def _probe(self, networks: BackboneNetworks, at: Sequence[int]) -> Stem:
        """LP, kept after steps `at`."""
        fields, one = self.fields, self.one
        phase = networks.phase(HEAD, fields.lp_steps, fields.noise_multiplier, fields.lp_lr)

        def training() -> PrivateTraining:
            head, records = networks.fresh_head(one.number), self._frozen
            return PrivateTraining(head, [phase], records.known, records.labels, **one.draws)

        return self.curves.stem(one, training, at)

    def _tune(
        self, networks: BackboneNetworks, lr: float, at: Sequence[int], stem: Stem | None = None
    ) -> list[dict[str, float]]:
        """FFT, from the end of LP if there is one, and what is seen after its steps `at`."""
        fields, one, task = self.fields, self.one, self.images
        before = fields.lp_steps if stem else 0
        phase = networks.phase(FULL, fields.steps - before, fields.noise_multiplier, lr)

        def make() -> tuple[PrivateTraining, Callable[[], dict[str, float]]]:
            network = networks.fresh(one.number)
            if stem is not None:
                network.load_state_dict(stem.weights[before], strict=False)
            after = stem.ran if stem else None
            training = PrivateTraining(
                network, [phase], task.known, task.labels, after=after, **one.draws
            )

            def look() -> dict[str, float]:
                if training.steps_done == 0:
                    return self._at_first(network.head)
                private = task.features(network)
                quality = self._quality(private, self.public.features(network))
                return {**quality, "accuracy": private.accuracy(network.head)}

            return training, look

        return self.curves.train(one, make, at)


KIND = Kind(
    feature_quality,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
)
