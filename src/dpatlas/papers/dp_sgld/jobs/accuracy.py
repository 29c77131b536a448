"""dp_sgld, beside Tables 1 and 2: Langevin SGD, DP-SGD and SGD, each tuned, at equal epsilon.

A job takes one data set, one kind of features and one schedule of step sizes, or both schedules,
which then share the rows of DP-SGD and SGD. accuracy_tuning chose the settings of every arm. The
paper's own protocol is `protocol`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from dpatlas.jobs.arms import Arms, Chosen, Setting
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.papers.dp_sgld.formulas.theorems import SCHEDULES
from dpatlas.papers.dp_sgld.jobs.arms import COMPARISONS, LANGEVIN, LangevinPlan, Problem
from dpatlas.papers.dp_sgld.jobs.regression import (
    arm_name,
    langevin,
    problem_of,
    regression_arms,
    reported,
    sgd,
)
from dpatlas.papers.dp_sgld.jobs.regression_data import Bounded
from dpatlas.papers.dp_sgld.records.accuracy import Accuracy, LangevinArm, Metrics, SgdArm, Spec
from dpatlas.privacy.samplers import Poisson

FULL_BATCH = ("noisy-gd", "repaired-full")
BOTH = "both"


@dataclass(frozen=True)
class Arm:
    """A method under one comparison at one epsilon; both are None without privacy.

    schedule: of Langevin steps; None for DP-SGD and SGD, whose learning rate is constant.
    """

    method: str
    comparison: str | None = None
    epsilon: float | None = None
    schedule: str | None = None


def accuracy(job: Job) -> Outcome:
    """The test accuracies of every arm of the tables.

    Raises InputError for a batch above n, for a step size >= 1 / beta, and for an accountant that
    cannot take an arm's batches.
    """
    problem = problem_of(job)
    metrics, ledger = reported(job, arms_of(job, problem), vars, row_of, problem.warnings())
    return Outcome(Metrics(**metrics), ledger)


def row_of(values: dict[str, Any]) -> LangevinArm | SgdArm:
    """A row of the record; Langevin arms have a schedule."""
    return (SgdArm if values["schedule"] is None else LangevinArm)(**values)


def compared(fields: Accuracy) -> Iterator[Arm]:
    """Every arm of the table, in the order of its rows."""
    schedules = SCHEDULES if fields.schedule == BOTH else (fields.schedule,)
    yield Arm("no-dp")
    for epsilon, comparison in product(fields.epsilons, COMPARISONS):
        # `published` and `theorem` share DP-SGD that accounts for add_remove.
        if comparison != "theorem":
            yield Arm("dp-sgd", comparison, epsilon)
        for schedule in schedules:
            yield Arm("dp-sgld", comparison, epsilon, schedule)
    for epsilon, schedule in product(fields.epsilons, schedules):
        yield Arm("noisy-gd", "theorem", epsilon, schedule)
        yield Arm("repaired-full", "guaranteed", epsilon, schedule)
        # The bound for cyclic batches holds for constant steps.
        if schedule == "constant":
            yield Arm("repaired-cyclic", "guaranteed", epsilon, schedule)


def arms_of(job: Job, problem: Problem) -> Arms[Arm, Bounded]:
    """The arms of a job of this kind, or of its tuning."""
    fields: Accuracy = job.fields
    batch = fields.batch

    def setting_of(arm: Arm, chosen: Chosen) -> Setting[Bounded]:
        if arm.method in LANGEVIN:
            assert arm.comparison and arm.schedule and arm.epsilon is not None
            passes = chosen["steps" if arm.method in FULL_BATCH else "epochs"]
            of_arm = (arm.method, arm.comparison, arm.schedule, chosen["lambda"], passes, batch)
            return langevin(LangevinPlan(problem, *of_arm), arm.epsilon)
        sampler = Poisson(problem.n, batch)
        plan = DpSgdPlan(
            sampler,
            steps=chosen["epochs"] * sampler.steps_per_epoch,
            max_grad_norm=fields.max_grad_norm,
            delta=problem.delta,
            relation="replace_one" if arm.comparison == "guaranteed" else "add_remove",
            accountant=problem.accountant,
        )
        return sgd(plan.calibrated(arm.epsilon), chosen["lr"], problem.classes)

    return regression_arms(job, list(compared(fields)), name_of, setting_of)


def name_of(arm: Arm) -> str:
    """The name by which an arm's settings are handed on."""
    return arm_name(arm, arm.comparison, arm.schedule)


KIND = Kind(
    accuracy,
    spec=Spec,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
