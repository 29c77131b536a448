"""dp_sgld: softmax regression on bounded features, by Langevin steps or by DP-SGD."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from dpatlas.accounting.ledger import Ran
from dpatlas.accounting.samplers import Sampler
from dpatlas.base.progress import say
from dpatlas.base.records import RecordShape, Row
from dpatlas.jobs.job import Job, Outcome
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LangevinPlan, RegressionProblem
from dpatlas_workflow.papers.dp_sgld.jobs.regression_data import Bounded, bounded
from dpatlas_workflow.papers.dp_sgld.records import RegressionSpec
from dpatlas_workflow.run.arms import Arm, Arms, Chosen, OneRun, accuracy
from dpatlas_workflow.run.private_plan import composed, resized
from dpatlas_workflow.run.private_records import identity, load_backbone
from dpatlas_workflow.run.reports import report

CONSTANTS = ("feature_norm", "lambda", "max_grad_norm", "n", "radius", "smoothness")
THEOREM = "Ryffel et al. 2022, Thm 3.2"


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


def regression_arms(job: Job, by_name: Mapping[str, Callable[[Chosen], Arm]]) -> Arms:
    """Arms of softmax regression, which see the job's bounded features.

    Raises InputError for a backbone other than the spec's, and for data scaled otherwise than those
    that it was trained on.
    """
    fields: RegressionSpec = job.fields
    backbone = None if fields.features == "raw" else load_backbone(job)
    return Arms(
        by_name,
        partial(bounded, fields, backbone),
        "Langevin SGD and DP-SGD on softmax regression over bounded features",
        f"records of norm at most {fields.feature_norm:g}; DP-SGD: max_grad_norm "
        f"{fields.max_grad_norm:g} unless its row says otherwise",
        CONSTANTS,
        seen,
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


def langevin(
    named: Mapping[str, Any], plan: LangevinPlan, epsilon: float, *, every_epoch: bool = False
) -> Arm:
    """The plan with the noise for `epsilon`; a trial has the same noise on fewer records.

    named: the entries of the row that name the arm. every_epoch: whether the best accuracy over the
    ends of all epochs is measured as well.
    """
    sigma2 = plan.sigma2(epsilon)

    def train(one: OneRun) -> tuple[dict[str, Any], Ran]:
        x, labels = one.records.x["train"], one.records.labels["train"]
        here = plan.on(len(labels))
        settings = here.with_noise(sigma2)
        run = LangevinRun(settings, x, labels, plan.problem.classes, **one.draws)
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
    phase: TrainingPhase,
    relation: str,
    *,
    every_epoch: bool = False,
) -> Arm:
    """DP-SGD, or SGD if the phase has no noise, from zero weights.

    named, every_epoch: as for `langevin`.
    """

    def train(one: OneRun) -> tuple[dict[str, Any], Ran]:
        x, labels = one.records.x["train"], one.records.labels["train"]
        layer = nn.Linear(x.shape[1], problem.classes, bias=False)
        nn.init.zeros_(layer.weight)
        here = resized(phase, len(labels))
        training = PrivateTraining(layer, [here], x, labels, **one.draws)
        measured = _measured(one, training, layer.weight.detach, here.sampler, every_epoch)
        return measured, training.ran

    def row() -> Row:
        stated = composed(phase.accounted, problem.delta, relation, problem.accountant)
        return {**named, **sgd_entries(phase), **vars(stated)}

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


def reported(job: Job, record: RecordShape, arms: Arms, warnings: Sequence[str]) -> Outcome:
    """What a job of reported runs writes."""
    fields: RegressionSpec = job.fields
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
        "warnings": list(warnings),
    }
    assert isinstance(outcome.ledger, dict)
    ledger = {**outcome.ledger, "public_constants": sorted(CONSTANTS)}
    return Outcome({**facts, **outcome.metrics}, ledger)


def arm_name(method: str, epsilon: float | None, *names: str | None) -> str:
    """An arm in words: its method, those of `names` that are not None, and its privacy."""
    privacy = "without privacy" if epsilon is None else f"epsilon {epsilon:g}"
    return ", ".join([method, *filter(None, names), privacy])
