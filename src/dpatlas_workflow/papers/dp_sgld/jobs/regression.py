"""dp_sgld: softmax regression on bounded features, by Langevin steps or by DP-SGD."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from dpatlas.accounting.ledger import PUBLIC, Ran
from dpatlas.base.progress import say
from dpatlas.base.records import RecordShape, Row
from dpatlas.jobs.job import Job, Outcome
from dpatlas.jobs.resume import WatchedWork
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LANGEVIN, LangevinPlan, RegressionProblem
from dpatlas_workflow.papers.dp_sgld.jobs.regression_data import Bounded, bounded
from dpatlas_workflow.papers.dp_sgld.records import RegressionSpec
from dpatlas_workflow.run.arms import Arms, ArmSetting, Chosen, OneRun, accuracy
from dpatlas_workflow.run.private_plan import DpSgdPlan
from dpatlas_workflow.run.private_records import identity, load_backbone
from dpatlas_workflow.run.reports import Reports

CONSTANTS = ("feature_norm", "lambda", "max_grad_norm", "n", "radius", "smoothness")
THEOREM = "Ryffel et al. 2022, Thm 3.2"
A = TypeVar("A")
# What a regression takes of the last iterate, or of the last of every epoch.
Training = LangevinRun | PrivateTraining


class Named(Protocol):
    """An arm."""

    @property
    def method(self) -> str:
        """Its method."""

    @property
    def epsilon(self) -> float | None:
        """The target of its calibration; None without privacy."""


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


def regression_arms(
    job: Job,
    compared: Sequence[A],
    named: Callable[[A], str],
    setting_of: Callable[[A, Chosen], ArmSetting[Bounded]],
) -> Arms[A, Bounded]:
    """Arms of softmax regression, which see the job's bounded features.

    Raises InputError for a backbone other than the spec's, and for data scaled otherwise than those
    that it was trained on.
    """
    fields: RegressionSpec = job.fields
    backbone = None if fields.features == "raw" else load_backbone(job)
    constants = dict.fromkeys(CONSTANTS, PUBLIC)
    return Arms(compared, named, partial(bounded, fields, backbone), setting_of, constants, seen)


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
    plan: LangevinPlan, epsilon: float, *, every_epoch: bool = False
) -> ArmSetting[Bounded]:
    """The plan with the noise for `epsilon`; a trial has the same noise on fewer records.

    every_epoch: whether the best accuracy over the ends of all epochs is measured as well.
    """
    sigma2 = plan.sigma2(epsilon)

    def train(one: OneRun[Bounded]) -> tuple[dict[str, Any], Ran]:
        x, labels = one.records.x, one.records.labels
        here = plan.on(len(labels["train"]))
        settings, classes = here.with_noise(sigma2), plan.problem.classes
        run = LangevinRun(settings, x["train"], labels["train"], classes, **one.draws)
        epoch = here.sampler.steps_per_epoch if every_epoch else None
        return _followed(one, run, lambda: run.weights, epoch), here.ran(run)

    facts = {
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
    }
    return ArmSetting(facts, lambda: plan.stated(sigma2).as_row(), train)


def sgd(
    plan: DpSgdPlan, lr: float, classes: int, *, every_epoch: bool = False, **of_phase: Any
) -> ArmSetting[Bounded]:
    """DP-SGD, or SGD if the plan has no noise, from zero weights.

    every_epoch: as for `langevin`; of_phase: further settings of the training phase.
    """

    def train(one: OneRun[Bounded]) -> tuple[dict[str, Any], Ran]:
        x, labels = one.records.x["train"], one.records.labels["train"]
        layer = nn.Linear(x.shape[1], classes, bias=False)
        nn.init.zeros_(layer.weight)
        here = plan.on(len(labels))
        training = PrivateTraining(layer, [here.phase(lr, **of_phase)], x, labels, **one.draws)
        epoch = here.sampler.steps_per_epoch if every_epoch else None
        measured = _followed(one, training, layer.weight.detach, epoch)
        return measured, training.ran

    decay = {name: value for name, value in of_phase.items() if name == "weight_decay"}
    return ArmSetting({**sgd_facts(plan, lr), **decay}, lambda: plan.stated.as_row(), train)


def sgd_facts(plan: DpSgdPlan, lr: float) -> dict[str, Any]:
    """The settings of DP-SGD, or SGD, that a row holds."""
    return {"lr": lr, "epochs": plan.steps / plan.sampler.steps_per_epoch, **plan.facts()}


def _followed(
    one: OneRun[Bounded],
    training: Training,
    weights: Callable[[], torch.Tensor],
    epoch: int | None,
) -> dict[str, Any]:
    """What is measured of a training: accuracy of its last iterate.

    With the steps of an `epoch`, also the best of those at the ends of all epochs.
    """

    def look() -> float:
        return accuracy(one.records.x["test"] @ weights().T, one.records.labels["test"])

    if epoch is None:
        one.finish(training)
        return {"accuracy": look()}
    ends = [*range(epoch, training.steps, epoch), training.steps]
    watched = WatchedWork(training, look, ends)
    one.stages.finish(watched)
    return {"accuracy": watched.seen[-1], "best_epoch_accuracy": max(watched.seen)}


def reported(
    job: Job,
    arms: Arms[A, Bounded],
    record: RecordShape,
    facts_of: Callable[[A], dict[str, Any]],
    warnings: Sequence[str],
) -> Outcome:
    """What a job of reported runs writes; facts_of: the columns that name an arm."""
    fields: RegressionSpec = job.fields
    for warning in warnings:
        say(f"{job.spec.id}: {warning}")
    reports = Reports(
        job, arms, record, facts_of, lambda row: {"claimed": claim(row, fields.delta)}
    )
    tables = reports.run()
    data, seen = job.prepared, reports.seen
    (inputs,) = {of_run.pop("inputs") for of_run in seen}
    facts = {
        "n_train": len(data.y_train),
        "n_test": len(data.y_test),
        "inputs": inputs,
        "classes": len(data.classes),
        "backbone": None if fields.features == "raw" else identity(load_backbone(job)),
        "features": job.features and job.features.identity(),
        "warnings": list(warnings),
    }
    ledger = {**reports.ledger(*in_words(fields)), "public_constants": sorted(CONSTANTS)}
    return Outcome({**facts, "seen": seen, **tables}, ledger)


def claim(row: Row, delta: float) -> dict[str, Any] | None:
    """What the paper's theorem guarantees of an arm, as `ledger` takes it; None if nothing.

    Of DP-SGD the paper states what composition guarantees, which is the ledger's own epsilon.
    """
    if row["claimed_epsilon"] is None or row["method"] not in LANGEVIN:
        return None
    return {"epsilon": row["claimed_epsilon"], "delta": delta, "by": THEOREM}


def arm_name(arm: Named, *names: str | None) -> str:
    """An arm in words: its method, those of `names` that are not None, and its privacy."""
    privacy = "without privacy" if arm.epsilon is None else f"epsilon {arm.epsilon:g}"
    return ", ".join([arm.method, *filter(None, names), privacy])


def in_words(fields: RegressionSpec) -> tuple[str, str]:
    """Mechanism and clip of all arms, for the job's ledger."""
    return (
        "Langevin SGD and DP-SGD on softmax regression over bounded features",
        f"records of norm at most {fields.feature_norm:g}; DP-SGD: max_grad_norm "
        f"{fields.max_grad_norm:g} unless its row says otherwise",
    )
