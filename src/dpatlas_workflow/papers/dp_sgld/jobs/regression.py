"""dp_sgld: softmax regression on bounded features, by Langevin steps or by DP-SGD."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.accounting.ledger import Ran
from dpatlas.accounting.samplers import Sampler
from dpatlas.base.progress import say
from dpatlas.base.records import RecordShape, Row
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Outcome
from dpatlas.models.backbone import Backbone
from dpatlas.privacy.langevin import BoundedRecords, LangevinRun, bound_records
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.dp_sgld.jobs.arms import STEP_SIZE, LangevinPlan, RegressionProblem
from dpatlas_workflow.papers.dp_sgld.records import RegressionSpec
from dpatlas_workflow.run.arms import Arm, Arms, Chosen, OneRun, accuracy
from dpatlas_workflow.run.deals import Dealt
from dpatlas_workflow.run.private_plan import calibrated, composed, dp_sgd_phase, resized
from dpatlas_workflow.run.private_records import identity, load_backbone
from dpatlas_workflow.run.reports import report

CONSTANTS = ("feature_norm", "lambda", "max_grad_norm", "n", "radius", "smoothness")
THEOREM = "Ryffel et al. 2022, Thm 3.2"
# Least norm that a record is divided by: a shorter one has no direction.
LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Bounded:
    """What the regressions of a run see: x (records, d) and labels (records,) by part.

    scaled_down: training records that were longer than the declared norm, or not finite.
    """

    x: dict[str, Tensor]
    labels: dict[str, Tensor]
    scaled_down: int


def problem_of(job: Job, step_size: float | None = None) -> RegressionProblem:
    """What is public of the job's data and settings; step_size: None for the spec's."""
    fields: RegressionSpec = job.fields
    return RegressionProblem(
        n=len(job.prepared.y_train),
        classes=len(job.prepared.classes),
        feature_norm=fields.feature_norm,
        delta=fields.delta,
        step_size=fields.step_size if step_size is None else step_size,
        radius=fields.radius,
        accountant=fields.accountant,
    )


def regression_arms(job: Job, arms: Iterable[Any], at: Callable[[Job, Any, Chosen], Arm]) -> Arms:
    """Arms of softmax regression, which see the job's bounded features.

    at: makes one of `arms`, which have a `name`, at settings.

    Raises InputError for a backbone other than the spec's, and for data scaled otherwise than those
    that it was trained on.
    """
    fields: RegressionSpec = job.fields
    backbone = None if fields.features == "raw" else load_backbone(job)
    return Arms(
        {arm.name: partial(at, job, arm) for arm in arms},
        partial(bounded, fields, backbone),
        "Langevin SGD and DP-SGD on softmax regression over bounded features",
        f"records of norm at most {fields.feature_norm:g}; DP-SGD: max_grad_norm "
        f"{fields.max_grad_norm:g} unless its row says otherwise",
        CONSTANTS,
        seen,
    )


def bounded(fields: RegressionSpec, backbone: Backbone | None, dealt: Dealt) -> Bounded:
    """The features that the spec names of the records of a run, each scaled by itself.

    Raises InputError for a backbone without classes where they are asked for.
    """

    def part_of(array: np.ndarray) -> BoundedRecords:
        inputs = torch.from_numpy(array)
        if fields.features == "softmax" and backbone is not None:
            if len(backbone.classes) < 2:
                raise InputError("features", "softmax of a backbone without classes", "penultimate")
            inputs = torch.softmax(backbone.network.head(inputs), 1)
        if fields.normalise:
            norms = torch.linalg.vector_norm(inputs, dim=1, keepdim=True)
            inputs = fields.feature_norm * inputs / norms.clamp_min(LEAST_NORM)
        return bound_records(inputs, fields.feature_norm)

    arrays = dealt.x if backbone is None else dealt.features(backbone)
    parts = {part: part_of(arrays[part]) for part in dealt.labels}
    return Bounded(
        {part: found.x for part, found in parts.items()},
        {part: torch.from_numpy(labels) for part, labels in dealt.labels.items()},
        parts["train"].scaled_down,
    )


def seen(records: Bounded) -> dict[str, Any]:
    """About the records of a run, for its record.

    mean_eigenvalue: lambda_max(mean x x^T) of the private records. It is private information, for
    the reader only: nothing is calibrated by it.
    """
    x = records.x["train"].double()
    return {
        "inputs": x.shape[1],
        "scaled_down": records.scaled_down,
        "mean_eigenvalue": float(torch.linalg.eigvalsh(x.T @ x / len(x))[-1]),
    }


def langevin(named: Mapping[str, Any], plan: LangevinPlan, *, every_epoch: bool = False) -> Arm:
    """The plan with the noise for its epsilon; a trial has the same noise on fewer records.

    named: the entries of the row that name the arm, with `epsilon`. every_epoch: whether the best
    accuracy over the ends of all epochs is measured as well.
    """
    sigma2 = plan.sigma2(named["epsilon"])

    def train(one: OneRun) -> tuple[dict[str, Any], Ran]:
        x, labels = one.records.x["train"], one.records.labels["train"]
        here = plan.on(len(labels))
        run = LangevinRun(here.with_noise(sigma2), x, labels, plan.problem.classes, **one.draws)
        measured = _measured(one, run, lambda: run.weights, here.sampler, every_epoch)
        return measured, here.ran(run)

    def row() -> Row:
        return {
            **named,
            "lambda": plan.lam,
            "beta": plan.beta,
            "lipschitz": plan.problem.lipschitz,
            "radius": plan.radius,
            "lr": plan.rates[0],
            "batch": plan.sampler.batch,
            "epochs": plan.passes,
            "steps": plan.steps,
            "sigma": math.sqrt(sigma2),
            "sampler": plan.sampler.name,
            **vars(plan.stated(sigma2)),
        }

    return Arm(train, row, THEOREM)


def sgd(
    named: Mapping[str, Any],
    problem: RegressionProblem,
    sampler: Sampler,
    relation: str,
    *,
    max_grad_norm: float,
    steps: int,
    lr: float,
    every_epoch: bool = False,
    **more: float,
) -> Arm:
    """DP-SGD, or SGD where epsilon is None, from zero weights.

    named, every_epoch: as for `langevin`. more: further settings of the phase.
    """
    accounts = (problem.delta, relation, problem.accountant)
    noise = calibrated(sampler, steps, named["epsilon"], *accounts)
    phase = dp_sgd_phase(sampler, noise, max_grad_norm, steps, lr, **more)

    def train(one: OneRun) -> tuple[dict[str, Any], Ran]:
        x, labels = one.records.x["train"], one.records.labels["train"]
        layer = nn.Linear(x.shape[1], problem.classes, bias=False)
        nn.init.zeros_(layer.weight)
        here = resized(phase, len(labels))
        training = PrivateTraining(layer, [here], x, labels, **one.draws)
        measured = _measured(one, training, layer.weight.detach, here.sampler, every_epoch)
        return measured, training.ran

    def row() -> Row:
        return {**named, **sgd_entries(phase), **vars(composed(phase.accounted, *accounts))}

    return Arm(train, row)


def sgd_entries(phase: TrainingPhase) -> dict[str, Any]:
    """The settings of DP-SGD, or SGD, that a row holds."""
    private = phase.noise_multiplier > 0
    return {
        "lr": phase.lr,
        "epochs": phase.steps / phase.sampler.steps_per_epoch,
        "batch": phase.sampler.batch,
        "steps": phase.steps,
        "max_grad_norm": phase.max_grad_norm if private else None,
        "noise_multiplier": phase.noise_multiplier if private else None,
        "sampler": phase.sampler.name,
        "weight_decay": phase.weight_decay,
    }


def _measured(
    one: OneRun,
    training: LangevinRun | PrivateTraining,
    weights: Callable[[], torch.Tensor],
    sampler: Sampler,
    every_epoch: bool,
) -> dict[str, Any]:
    """Accuracy of the last iterate and, on demand, the best of those at the ends of all epochs."""

    def look() -> float:
        return accuracy(one.records.x["test"] @ weights().T, one.records.labels["test"])

    epochs = range(sampler.steps_per_epoch, training.steps, sampler.steps_per_epoch)
    seen = one.finish(training, look, [*(epochs if every_epoch else ()), training.steps])
    return {"accuracy": seen[-1], **({"best_epoch_accuracy": max(seen)} if every_epoch else {})}


def reported(
    job: Job, record: RecordShape, arms: Arms, step_sizes: Sequence[tuple[str, float]]
) -> Outcome:
    """What a job of reported runs writes; step_sizes: first steps, behind what tells them apart.

    Warns of steps that are allowed and not covered by every theorem.
    """
    fields: RegressionSpec = job.fields
    warnings = [
        f"{of}step size {size:g}/beta: the utility theorems cover steps up to 1/(2 beta)"
        for of, size in step_sizes
        if size > STEP_SIZE
    ]
    for warning in warnings:
        say(f"{job.spec.id}: {warning}")
    outcome = report(job, record, arms)
    (inputs,) = {of_run.pop("inputs") for of_run in outcome.metrics["seen"]}
    facts = {
        "n_train": len(job.prepared.y_train),
        "n_test": len(job.prepared.y_test),
        "inputs": inputs,
        "classes": len(job.prepared.classes),
        "backbone": None if fields.features == "raw" else identity(load_backbone(job)),
        "features": job.features and job.features.identity(),
        "warnings": warnings,
    }
    assert isinstance(outcome.ledger, dict)
    ledger = {**outcome.ledger, "public_constants": sorted(CONSTANTS)}
    return Outcome({**facts, **outcome.metrics}, ledger)


def arm_name(method: str, epsilon: float | None, *names: str | None) -> str:
    """An arm in words: its method, those of `names` that are not None, and its privacy."""
    privacy = "without privacy" if epsilon is None else f"epsilon {epsilon:g}"
    return ", ".join([method, *filter(None, names), privacy])
