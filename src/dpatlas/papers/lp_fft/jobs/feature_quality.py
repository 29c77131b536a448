"""lp_fft: quality of the features during private training (Fig. 2 left, Fig. 7).

FFT and LP-FFT at equal budget, for every head scale and learning rate. Quality is the accuracy of
nearest neighbours on the features, on the private and on the pre-training task.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from dpatlas.core.guard import integer
from dpatlas.core.progress import Progress
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.jobs.arms import accuracy
from dpatlas.jobs.deals import Deals
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.private_records import load_backbone
from dpatlas.models.backbone import Backbone
from dpatlas.models.network import Network
from dpatlas.papers.lp_fft.jobs.curves import Curves, Look
from dpatlas.papers.lp_fft.jobs.features import (
    PhasePlan,
    backbone_used,
    check_accountant,
    ledger_of,
    private_task,
    public_task,
    training_of,
)
from dpatlas.papers.lp_fft.jobs.networks import Networks, Seen, outputs
from dpatlas.papers.lp_fft.records.feature_quality import Metrics, PublicTask, Row, Spec, Strategy
from dpatlas.papers.lp_fft.records.private import FULL, HEAD
from dpatlas.privacy.accounting import Phase
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import PrivateTraining

COMPARED: tuple[Strategy, ...] = ("fft", "lp-fft")
# Head scale, learning rate of FFT and strategy.
Condition = tuple[float, float, Strategy]


def feature_quality(job: Job) -> Outcome:
    """Rows by head scale, rate and strategy.

    All rows of a run share its records, random head, batches and noise.

    Raises InputError for more neighbours than records that vote, for public data that the backbone
    was not trained on, and for a mechanism that no accountant covers.
    """
    fields: Spec = job.fields
    deals = Deals(job)
    backbone = load_backbone(job)
    public = _public(job, backbone)
    quality = Quality(job, public, backbone)
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
    metrics = Metrics(
        n_train=deals.sizes["train"],
        n_test=deals.sizes["test"],
        backbone=backbone_used(backbone),
        public=PublicTask(name=public.manifest["name"], sha256=public.manifest["sha256"]),
        epsilon=weakest["epsilon"],
        rows=[
            _row(fields, condition, [run[i] for run in runs])
            for i, condition in enumerate(conditions)
        ],
    )
    return Outcome(metrics, {**weakest, "arms": ledgers})


class Quality:
    """The trainings of a job and the quality of their features on both tasks."""

    def __init__(self, job: Job, public: Prepared, backbone: Backbone):
        self.job, self.backbone = job, backbone
        self.fields: Spec = job.fields
        self.sampler = Poisson(len(job.prepared.y_train), self.fields.batch)
        known, asked = self.fields.public_known, self.fields.public_asked
        self.public = public_task(public, job.device, known, asked)

    def run(
        self, curves: Curves, deals: Deals, number: int, conditions: Sequence[Condition]
    ) -> list[list[dict[str, float]]]:
        """What every condition of a run gives, at every evaluated step."""
        seen = Seen(deals.of(number), self.backbone, self.job.device)
        tasks = {"private": private_task(seen), "public": self.public}
        # The features of the backbone, with which all trainings start and which LP leaves
        # unchanged, are evaluated once.
        initial: dict[str, float] = {}

        def quality(network: Network, moved: bool) -> dict[str, float]:
            """Quality by task; moved: whether some step has changed the features."""
            if not moved and initial:
                return initial
            neighbours = self.fields.neighbours
            found = {name: task.quality(network, neighbours) for name, task in tasks.items()}
            if not moved:
                initial.update(found)
            return found

        def train(head_scale: float, lr: float, strategy: Strategy) -> list[dict[str, float]]:
            networks = Networks(
                self.job,
                self.backbone,
                head_scale=head_scale,
                feature_scale=self.fields.feature_scale,
            )
            plans = self._plans(strategy, lr)
            probing = sum(plan.steps for plan in plans if plan.part == HEAD)

            def make(draws: Mapping[str, Any]) -> tuple[PrivateTraining, Look]:
                network = networks.fresh(number)
                training = training_of(networks, network, self.sampler, plans, seen, draws)

                def look() -> dict[str, Any]:
                    predicted = outputs(network, seen.x["test"]).cpu()
                    correct = accuracy(predicted, seen.labels["test"].cpu())
                    moved = training.steps_done > probing
                    return {**quality(network, moved), "accuracy": correct}

                return training, look

            return curves.run(number, make, self.fields.at)

        return [train(*condition) for condition in conditions]

    def _plans(self, strategy: Strategy, lr: float) -> list[PhasePlan]:
        fields, noise = self.fields, self.fields.noise_multiplier
        if strategy == "fft":
            return [PhasePlan(FULL, fields.steps, noise, lr)]
        probing = PhasePlan(HEAD, fields.lp_steps, noise, fields.lp_lr)
        return [probing, PhasePlan(FULL, fields.steps - fields.lp_steps, noise, lr)]


def _row(fields: Spec, condition: Condition, runs: list[list[dict[str, float]]]) -> Row:
    head_scale, lr, strategy = condition
    measured = ("private", "public", "accuracy")
    return Row(
        head_scale=head_scale,
        lr=lr,
        strategy=strategy,
        steps=fields.at,
        **{name: [[point[name] for point in run] for run in runs] for name in measured},
    )


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
