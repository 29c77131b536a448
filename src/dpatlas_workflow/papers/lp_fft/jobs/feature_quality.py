"""lp_fft: quality of the features during private training (Fig. 2 left, Fig. 7).

FFT and LP-FFT at equal budget, for every head scale and learning rate. Quality is the accuracy of
nearest neighbours on the features, on the private and on the pre-training task.
"""

import math
from functools import cached_property
from itertools import product

from torch import nn

from dpatlas.base.guard import integer
from dpatlas.base.progress import Progress
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.network import Network
from dpatlas_workflow.papers.lp_fft.jobs.features import Curves, Task, private_task, public_task
from dpatlas_workflow.papers.lp_fft.jobs.networks import public_images
from dpatlas_workflow.papers.lp_fft.records.feature_quality import RECORD, FeatureQualitySpec
from dpatlas_workflow.papers.lp_fft.records.private import FULL, HEAD
from dpatlas_workflow.run.arms import OneRun
from dpatlas_workflow.run.branches import Stem

COMPARED = ("fft", "lp-fft")


def feature_quality(job: Job) -> Outcome:
    """Curves by head scale, rate and strategy.

    All curves of a run share its records, random head, batches and noise.

    Raises InputError for more neighbours than records that vote, for public data that the backbone
    was not trained on, and for a mechanism that no accountant covers.
    """
    fields: FeatureQualitySpec = job.fields
    curves = Curves(job)
    images = public_images(job, curves.backbone)
    public = public_task(images, job.device, fields.public_known, fields.public_asked)
    for votes in (curves.deals.sizes["train"], len(public.labels)):
        integer(ge=1, le=votes).check("neighbours", fields.neighbours)
    curves.check((fields.noise_multiplier, fields.steps))
    conditions = list(product(fields.head_scales, fields.lrs, COMPARED))
    with Progress(len(conditions) * fields.runs, job.spec.id) as curves.progress:
        runs = []
        for one in curves.runs():
            quality = QualityRun(curves, public, one)
            runs.append([quality.train(*condition) for condition in conditions])
    ledgers = [curves.ledger(ran) for ran in dict.fromkeys(curves.ran)]
    epsilons = [math.inf if arm["epsilon"] is None else arm["epsilon"] for arm in ledgers]
    weakest = ledgers[epsilons.index(max(epsilons))]
    facts = {
        **curves.facts,
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

    def __init__(self, curves: Curves, public: Task, one: OneRun):
        self.curves, self.public, self.one = curves, public, one
        self.fields: FeatureQualitySpec = one.job.fields
        self.images = private_task(one.records)
        self._probed: dict[float, Stem] = {}

    def _quality(self, private: Task, public: Task) -> dict[str, float]:
        """Quality by task, whose records are features."""
        neighbours = self.fields.neighbours
        return {"private": private.quality(neighbours), "public": public.quality(neighbours)}

    @cached_property
    def _frozen(self) -> Task:
        """The features of the backbone."""
        return self.images.features(self.curves.networks(1.0).fresh(self.one.number))

    @cached_property
    def _initial(self) -> dict[str, float]:
        """Their quality by task."""
        untrained = self.curves.networks(1.0).fresh(self.one.number)
        return self._quality(self._frozen, self.public.features(untrained))

    def _at_first(self, head: nn.Module) -> dict[str, float]:
        """What is seen before the features move."""
        return {**self._initial, "accuracy": self._frozen.accuracy(head)}

    def _look(self, network: Network, moved: bool) -> dict[str, float]:
        if not moved:
            return self._at_first(network.head)
        private = self.images.features(network)
        quality = self._quality(private, self.public.features(network))
        return {**quality, "accuracy": private.accuracy(network.head)}

    def train(self, head_scale: float, lr: float, strategy: str) -> list[dict[str, float]]:
        """Quality by task, and accuracy, at every evaluated step.

        lr: of FFT, alone or after LP.
        """
        fields, one, networks = self.fields, self.one, self.curves.networks(head_scale)
        before = fields.lp_steps if strategy == "lp-fft" else 0
        tuning = networks.phase(FULL, fields.steps - before, fields.noise_multiplier, lr)
        if not before:
            return self.curves.tune(one, self.images, networks, tuning, fields.at, self._look)
        early = [step for step in fields.at if step <= before]
        if head_scale not in self._probed:
            probing = networks.phase(HEAD, before, fields.noise_multiplier, fields.lp_lr)
            at = sorted({*early, before})
            stem = self.curves.probe(one, self._frozen, networks, probing, at)
            self._probed[head_scale] = stem
        stem = self._probed[head_scale]
        seen = []
        for step in early:
            head = networks.fresh_head(one.number)
            head.load_state_dict(stem.weights[step])
            seen.append(self._at_first(head))
        # Without a later evaluation FFT takes no step.
        late = [step - before for step in fields.at[len(seen) :]]
        given = one, self.images, networks, tuning, late or [0], self._look, (stem, before)
        return [*seen, *self.curves.tune(*given)[: len(late)]]


KIND = Kind(feature_quality, record=RECORD, packages=("torch", "numpy", "scipy", "dp-accounting"))
