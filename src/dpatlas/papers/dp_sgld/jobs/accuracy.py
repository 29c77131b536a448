"""dp_sgld, Tables 1 and 2: accuracy of Langevin SGD, DP-SGD and plain SGD on frozen features.

A job takes one data set, one kind of features and one schedule of step sizes, or both, which then
share the rows of DP-SGD and SGD. Every arm tries its grid on the validation records and runs its
best setting `runs` times afresh (`search`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from dpatlas.core.guard import integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, LegacyFields, legacy
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.search import Setting
from dpatlas.papers.dp_sgld.formulas.theorems import SCHEDULES
from dpatlas.papers.dp_sgld.jobs.arms import COMPARISONS, LANGEVIN, LangevinPlan, Problem
from dpatlas.papers.dp_sgld.jobs.regression import (
    langevin_setting,
    problem_of,
    regression_ledger,
    regression_search,
    sgd_setting,
)
from dpatlas.papers.dp_sgld.jobs.regression_data import Split, load_split
from dpatlas.privacy.samplers import Poisson

FULL_BATCH = ("noisy-gd", "repaired-full")
BOTH = "both"
DOMAINS = {
    "schedule": one_of(*SCHEDULES, BOTH),
    "max_grad_norm": real(gt=0),
    "batch": integer(ge=1),
}
GRID = {"lambda": real(gt=0), "epochs": integer(ge=1), "steps": integer(ge=1), "lr": real(gt=0)}


@dataclass(frozen=True)
class Arm:
    """A method under one comparison at one epsilon; both None without privacy.

    schedule: of Langevin steps; None for DP-SGD and SGD, whose learning rate is constant.
    """

    method: str
    comparison: str | None = None
    epsilon: float | None = None
    schedule: str | None = None


def accuracy(job: Job) -> dict[str, Any]:
    """Metrics and ledger of a spec of kind `accuracy`.

    `rows`: per arm the best setting, what is claimed and guaranteed, settings tried, validation
    accuracy of the best, and the test accuracy of every run.

    Raises InputError for settings outside their domains, for a batch above n, for a step size
    >= 1 / beta, and for an accountant that cannot take an arm's batches.
    """
    fields = job.spec.fields
    check_settings(fields)
    split = load_split(job)
    problem = problem_of(job, split)
    arms = list(arms_of(fields))
    search = regression_search(
        job, arms, lambda arm: list(settings_of(arm, fields, problem, split))
    )
    rows = search.run()
    metrics = {**split.facts(), "warnings": problem.warnings(), "rows": rows}
    return {"metrics": metrics, "ledger": regression_ledger(search)}


def check_settings(fields: dict[str, Any]) -> None:
    """InputError for the first setting outside its domain."""
    for name, domain in DOMAINS.items():
        domain.check(name, fields[name])
    for name, domain in GRID.items():
        values = fields["grid"][name]
        if not values:
            raise InputError(f"grid.{name}", "an empty list", domain.describe())
        for value in values:
            domain.check(f"grid.{name}", value)


def arms_of(fields: dict[str, Any]) -> Iterator[Arm]:
    """Every arm of the table, in the order of its rows."""
    schedules = SCHEDULES if fields["schedule"] == BOTH else (fields["schedule"],)
    yield Arm("no-dp")
    for epsilon, comparison in product(fields["epsilons"], COMPARISONS):
        # Add-remove accounting of DP-SGD serves both: it appears once, as published.
        if comparison != "theorem":
            yield Arm("dp-sgd", comparison, epsilon)
        for schedule in schedules:
            yield Arm("dp-sgld", comparison, epsilon, schedule)
    for epsilon, schedule in product(fields["epsilons"], schedules):
        yield Arm("noisy-gd", "theorem", epsilon, schedule)
        yield Arm("repaired-full", "guaranteed", epsilon, schedule)
        # The bound for cyclic batches is for constant steps.
        if schedule == "constant":
            yield Arm("repaired-cyclic", "guaranteed", epsilon, schedule)


def settings_of(
    arm: Arm, fields: dict[str, Any], problem: Problem, split: Split
) -> Iterator[Setting]:
    """The grid of an arm."""
    grid, batch = fields["grid"], fields["batch"]
    if arm.method in LANGEVIN:
        passes = grid["steps" if arm.method in FULL_BATCH else "epochs"]
        for lam, count in product(grid["lambda"], passes):
            plan = LangevinPlan(
                problem, arm.method, arm.comparison, arm.schedule, lam, count, batch
            )
            yield langevin_setting(plan, arm.epsilon, split)
        return
    relation = "replace_one" if arm.comparison == "guaranteed" else "add_remove"
    sampler = Poisson(problem.n, batch)
    for lr, epochs in product(grid["lr"], grid["epochs"]):
        steps = epochs * sampler.steps_per_epoch
        asked = (problem.delta, relation, problem.accountant)
        plan = DpSgdPlan(sampler, steps, fields["max_grad_norm"], *asked)
        yield sgd_setting(plan.calibrated(arm.epsilon), lr, split)


KIND = Kind(
    legacy(accuracy),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
