"""dp_sgld, beside Tables 1 and 2: Langevin SGD, DP-SGD and SGD, each tuned, at equal epsilon.

A job takes one data set, one kind of features and one schedule of step sizes, or both schedules,
which then share the rows of DP-SGD and SGD. accuracy_tuning chose the settings of every arm. The
paper's own protocol is `protocol`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from dpatlas.accounting.samplers import Poisson
from dpatlas.formulas.dp_sgld.theorems import SCHEDULES
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs import PACKAGES
from dpatlas_workflow.papers.dp_sgld.jobs.arms import COMPARISONS, LANGEVIN, LangevinPlan
from dpatlas_workflow.papers.dp_sgld.jobs.regression import (
    arm_name,
    langevin,
    problem_of,
    regression_arms,
    reported,
    sgd,
)
from dpatlas_workflow.papers.dp_sgld.records.accuracy import RECORD, AccuracyFields
from dpatlas_workflow.run.arms import Arm, Chosen

FULL_BATCH = ("noisy-gd", "repaired-full")
BOTH = "both"


@dataclass(frozen=True)
class AccuracyArm:
    """A method under one comparison at one epsilon; both are None without privacy.

    schedule: of Langevin steps; None for DP-SGD and SGD, whose learning rate is constant. l2:
    whether the method may have an L2 term; without one it is tuned first, and not reported.
    """

    method: str
    comparison: str | None = None
    epsilon: float | None = None
    schedule: str | None = None
    l2: bool = True

    @property
    def name(self) -> str:
        """The name by which its settings are handed on."""
        without = None if self.l2 else "without L2 term"
        return arm_name(self.method, self.epsilon, without, self.comparison, self.schedule)


def accuracy(job: Job) -> Outcome:
    """The test accuracies of every arm of the tables.

    Raises InputError for a batch above n, for a step size >= 1 / beta, and for an accountant that
    cannot take an arm's batches.
    """
    of_arms = (chosen.get("step_size") for chosen in job.chosen.values())
    sizes = sorted({size for size in of_arms if isinstance(size, float)})
    arms = regression_arms(job, compared(job.fields), at)
    return reported(job, RECORD, arms, [("", size) for size in sizes])


def compared(fields: AccuracyFields) -> Iterator[AccuracyArm]:
    """Every arm of the table, in the order of its rows."""
    schedules = SCHEDULES if fields.schedule == BOTH else (fields.schedule,)
    yield AccuracyArm("no-dp")
    for epsilon, comparison in product(fields.epsilons, COMPARISONS):
        # `published` and `theorem` share DP-SGD that accounts for add_remove.
        if comparison != "theorem":
            yield AccuracyArm("dp-sgd", comparison, epsilon)
        for schedule in schedules:
            yield AccuracyArm("dp-sgld", comparison, epsilon, schedule)
    for epsilon, schedule in product(fields.epsilons, schedules):
        yield AccuracyArm("noisy-gd", "theorem", epsilon, schedule)
        yield AccuracyArm("repaired-full", "guaranteed", epsilon, schedule)
        # The bound for cyclic batches holds for constant steps.
        if schedule == "constant":
            yield AccuracyArm("repaired-cyclic", "guaranteed", epsilon, schedule)


def at(job: Job, arm: AccuracyArm, chosen: Chosen) -> Arm:
    """The arm at these settings."""
    fields: AccuracyFields = job.fields
    if arm.method in LANGEVIN:
        assert arm.comparison and arm.schedule
        problem = problem_of(job, chosen["step_size"])
        full = arm.method in FULL_BATCH
        passes, batch = chosen["steps" if full else "epochs"], chosen.get("batch", problem.n)
        of_arm = (arm.method, arm.comparison, arm.schedule, chosen["lambda"], passes, batch)
        return langevin(vars(arm), LangevinPlan(problem, *of_arm))
    problem = problem_of(job)
    sampler = Poisson(problem.n, chosen["batch"])
    return sgd(
        vars(arm),
        problem,
        sampler,
        "replace_one" if arm.comparison == "guaranteed" else "add_remove",
        max_grad_norm=chosen.get("max_grad_norm", fields.max_grad_norm),
        steps=chosen["epochs"] * sampler.steps_per_epoch,
        lr=chosen["lr"],
        weight_decay=chosen["weight_decay"],
    )


KIND = Kind(accuracy, record=RECORD, packages=PACKAGES, reads_images=False)
