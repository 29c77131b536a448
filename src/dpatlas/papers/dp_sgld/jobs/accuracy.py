"""dp_sgld, Tables 1 and 2: accuracy of Langevin SGD, DP-SGD and plain SGD on frozen features.

A job takes one data set, one kind of features and one schedule of step sizes, or both schedules,
which then share the rows of DP-SGD and SGD. Every arm tries its grid on the validation records and
runs its best setting `runs` times afresh (`dpatlas.jobs.search`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.search import Setting
from dpatlas.papers.dp_sgld.formulas.theorems import SCHEDULES
from dpatlas.papers.dp_sgld.jobs.arms import COMPARISONS, LANGEVIN, LangevinPlan, Problem
from dpatlas.papers.dp_sgld.jobs.regression import (
    arm_name,
    langevin_setting,
    problem_of,
    regression_ledger,
    regression_search,
    sgd_setting,
)
from dpatlas.papers.dp_sgld.jobs.regression_data import Split, load_split
from dpatlas.papers.dp_sgld.records.accuracy import LangevinArm, Metrics, SgdArm, Spec
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
    """Every arm of the tables at its best setting, with the test accuracy of every run.

    Raises InputError for a batch above n, for a step size >= 1 / beta, and for an accountant that
    cannot take an arm's batches.
    """
    fields: Spec = job.fields
    split = load_split(job)
    problem = problem_of(job, split)
    search = regression_search(
        job,
        list(arms_of(fields)),
        lambda arm: list(settings_of(arm, fields, problem, split)),
        row_of=row_of,
        named=lambda row: arm_name(row, row.comparison, row.schedule),
    )
    metrics = Metrics(**split.facts(), warnings=problem.warnings(), rows=search.run())
    return Outcome(metrics, regression_ledger(search))


def row_of(values: dict[str, Any]) -> LangevinArm | SgdArm:
    """A row of the record; Langevin arms have a schedule."""
    return (SgdArm if values["schedule"] is None else LangevinArm)(**values)


def arms_of(fields: Spec) -> Iterator[Arm]:
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


def settings_of(arm: Arm, fields: Spec, problem: Problem, split: Split) -> Iterator[Setting]:
    """The points of an arm's grid, each with its noise."""
    grid, batch = fields.grid, fields.batch
    if arm.method in LANGEVIN:
        assert arm.comparison is not None and arm.schedule is not None and arm.epsilon is not None
        passes = grid.steps if arm.method in FULL_BATCH else grid.epochs
        for lam, count in product(grid.lam, passes):
            plan = LangevinPlan(
                problem, arm.method, arm.comparison, arm.schedule, lam, count, batch
            )
            yield langevin_setting(plan, arm.epsilon, split)
        return
    sampler = Poisson(problem.n, batch)
    for lr, epochs in product(grid.lr, grid.epochs):
        dp_sgd = DpSgdPlan(
            sampler,
            steps=epochs * sampler.steps_per_epoch,
            max_grad_norm=fields.max_grad_norm,
            delta=problem.delta,
            relation="replace_one" if arm.comparison == "guaranteed" else "add_remove",
            accountant=problem.accountant,
        )
        yield sgd_setting(dp_sgd.calibrated(arm.epsilon), lr, split)


KIND = Kind(
    accuracy,
    spec=Spec,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
