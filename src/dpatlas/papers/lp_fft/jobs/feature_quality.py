"""lp_fft: quality of the features during private training (Fig. 2 left, Fig. 7).

FFT and LP-FFT at equal budget, for every head scale and learning rate. Quality is the accuracy of
nearest neighbours on the features, on the private and on the pre-training task.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from dpatlas.core.guard import integer
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.private_records import check_parts, load_backbone
from dpatlas.jobs.search import accuracy
from dpatlas.models.backbone import Backbone
from dpatlas.models.network import Network
from dpatlas.papers.lp_fft.jobs.curves import Curves, Look
from dpatlas.papers.lp_fft.jobs.features import (
    PhasePlan,
    backbone_used,
    check_accountant,
    ledger_of,
    task_of,
    training_of,
)
from dpatlas.papers.lp_fft.jobs.networks import Networks, outputs
from dpatlas.papers.lp_fft.records.feature_quality import Metrics, PublicTask, Row, Spec, Strategy
from dpatlas.papers.lp_fft.records.private import FULL, HEAD
from dpatlas.privacy.accounting import Phase
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import PrivateTraining

COMPARED: tuple[Strategy, ...] = ("fft", "lp-fft")


def feature_quality(job: Job) -> Outcome:
    """Rows by head scale, rate and strategy; run i of all rows starts from the same head.

    Raises InputError for more neighbours than records that vote, for public data that the backbone
    was not trained on, and for a mechanism that no accountant covers.
    """
    fields: Spec = job.fields
    check_parts(job.prepared)
    backbone = load_backbone(job)
    public = _public(job, backbone)
    quality = Quality(job, public, backbone)
    for task in quality.tasks.values():
        integer(ge=1, le=len(task.labels)).check("neighbours", fields.neighbours)
    check_accountant(fields, [Phase(quality.sampler, fields.noise_multiplier, fields.steps)])
    conditions = list(product(fields.head_scales, fields.lrs, COMPARED))
    with Progress(len(conditions) * fields.runs, job.spec.id) as progress:
        curves = Curves(job, progress)
        rows = [quality.row(curves, *condition) for condition in conditions]
    ledgers = [ledger_of(fields, ran) for ran in dict.fromkeys(curves.ran)]
    epsilons = [math.inf if arm["epsilon"] is None else arm["epsilon"] for arm in ledgers]
    weakest = ledgers[epsilons.index(max(epsilons))]
    metrics = Metrics(
        n_train=len(job.prepared.y_train),
        n_test=len(job.prepared.y_test),
        backbone=backbone_used(backbone),
        public=PublicTask(name=public.manifest["name"], sha256=public.manifest["sha256"]),
        epsilon=weakest["epsilon"],
        rows=rows,
    )
    return Outcome(metrics, {**weakest, "arms": ledgers})


class Quality:
    """The trainings of a job and the quality of their features on both tasks."""

    def __init__(self, job: Job, public: Prepared, backbone: Backbone):
        self.job, self.backbone = job, backbone
        self.fields: Spec = job.fields
        self.sampler = Poisson(len(job.prepared.y_train), self.fields.batch)
        known, asked = self.fields.public_known, self.fields.public_asked
        self.tasks = {
            "private": task_of(job.prepared, job.device),
            "public": task_of(public, job.device, known, asked),
        }
        # The features of the backbone, with which all runs start and which LP leaves unchanged, are
        # evaluated once.
        self._initial_quality: dict[str, float] = {}

    def row(self, curves: Curves, head_scale: float, lr: float, strategy: Strategy) -> Row:
        """All runs of one condition."""
        networks = Networks(
            self.job,
            self.backbone,
            head_scale=head_scale,
            feature_scale=self.fields.feature_scale,
        )
        plans = self._plans(strategy, lr)
        runs = [
            curves.run(self._maker(networks, plans, run), self.fields.at)
            for run in range(self.fields.runs)
        ]
        measured = ("private", "public", "accuracy")
        return Row(
            head_scale=head_scale,
            lr=lr,
            strategy=strategy,
            steps=self.fields.at,
            **{name: [[point[name] for point in run] for run in runs] for name in measured},
        )

    def _plans(self, strategy: Strategy, lr: float) -> list[PhasePlan]:
        fields, noise = self.fields, self.fields.noise_multiplier
        if strategy == "fft":
            return [PhasePlan(FULL, fields.steps, noise, lr)]
        probing = PhasePlan(HEAD, fields.lp_steps, noise, fields.lp_lr)
        return [probing, PhasePlan(FULL, fields.steps - fields.lp_steps, noise, lr)]

    def _maker(
        self, networks: Networks, plans: Sequence[PhasePlan], run: int
    ) -> Callable[[Noise, int], tuple[PrivateTraining, Look]]:
        def make(noise: Noise, number: int) -> tuple[PrivateTraining, Look]:
            network = networks.fresh(run)
            training = training_of(networks, network, self.sampler, plans, noise, number)
            probing = sum(plan.steps for plan in plans if plan.part == HEAD)

            def look() -> dict[str, Any]:
                moved = training.steps_done > probing
                predicted = outputs(network, networks.x["test"]).cpu()
                correct = accuracy(predicted, networks.labels["test"].cpu())
                return {**self._quality(network, moved), "accuracy": correct}

            return training, look

        return make

    def _quality(self, network: Network, moved: bool) -> dict[str, float]:
        """Quality by task; moved: whether some step has changed the features."""
        if not moved and self._initial_quality:
            return self._initial_quality
        neighbours = self.fields.neighbours
        quality = {name: task.quality(network, neighbours) for name, task in self.tasks.items()}
        if not moved:
            self._initial_quality = quality
        return quality


def _public(job: Job, backbone: Backbone) -> Prepared:
    """The images that the backbone was trained on; InputError for others or none."""
    trained = backbone.manifest["training"]["data"]["sha256"]
    if job.public is None or job.public.sha256 != trained:
        content = f"content with sha256 {job.public.sha256[:16]}" if job.public else "nothing"
        allowed = f"{trained[:16]}, the backbone's training images"
        raise InputError("--public-data", content, allowed)
    return job.public


KIND = Kind(
    feature_quality,
    spec=Spec,
    packages=("torch", "numpy", "scipy", "dp-accounting", "scikit-learn"),
)
