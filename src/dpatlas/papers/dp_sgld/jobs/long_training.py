"""dp_sgld: accuracy against the number of full-batch steps at one epsilon, neighbours replaced.

Every number of steps has its own noise and its own setting, tuned on the validation records.
    repaired-full  Langevin steps; the last iterate is accounted for, so that the noise converges
    dp-sgd         clipped full-batch steps; all iterates are, so that the noise grows like sqrt(K)
    noisy-gd       Langevin steps with the noise of Thm 3.2, which holds here but is not tight
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from dpatlas.core.guard import integer, real
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, LegacyFields, legacy
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.search import Setting
from dpatlas.papers.dp_sgld.jobs.arms import LangevinPlan, Problem
from dpatlas.papers.dp_sgld.jobs.regression import (
    langevin_setting,
    problem_of,
    regression_ledger,
    regression_search,
    sgd_setting,
)
from dpatlas.papers.dp_sgld.jobs.regression_data import Split, load_split
from dpatlas.privacy.samplers import FullBatch

# By method: the comparison that its noise is calibrated under.
METHODS = {"repaired-full": "guaranteed", "dp-sgd": "guaranteed", "noisy-gd": "theorem"}
RELATION = "replace_one"
LISTS = {"steps": integer(ge=1), "lambdas": real(gt=0), "lrs": real(gt=0)}


@dataclass(frozen=True)
class Arm:
    """A method run for `steps` steps."""

    method: str
    comparison: str
    epsilon: float
    steps: int


def long_training(job: Job) -> dict[str, Any]:
    """Metrics and ledger of a spec of kind `long_training`.

    `rows`: per number of steps and method the best setting and its accuracies, as in
    `sgld_accuracy.accuracy`.

    Raises InputError for settings outside their domains and for a step size >= 1 / beta.
    """
    fields = job.spec.fields
    for name, domain in LISTS.items():
        if not fields[name]:
            raise InputError(name, "an empty list", domain.describe())
        for value in fields[name]:
            domain.check(name, value)
    real(gt=0).check("max_grad_norm", fields["max_grad_norm"])
    split = load_split(job)
    problem = problem_of(job, split)
    arms = [
        Arm(method, comparison, fields["epsilon"], steps)
        for steps, (method, comparison) in product(fields["steps"], METHODS.items())
    ]
    search = regression_search(
        job, arms, lambda arm: list(settings_of(arm, fields, problem, split))
    )
    rows = search.run()
    metrics = {**split.facts(), "warnings": problem.warnings(), "rows": rows}
    return {"metrics": metrics, "ledger": regression_ledger(search)}


def settings_of(
    arm: Arm, fields: dict[str, Any], problem: Problem, split: Split
) -> Iterator[Setting]:
    """One setting per lambda, or per learning rate."""
    if arm.method == "dp-sgd":
        asked = (problem.delta, RELATION, problem.accountant)
        plan = DpSgdPlan(FullBatch(problem.n), arm.steps, fields["max_grad_norm"], *asked)
        for lr in fields["lrs"]:
            yield sgd_setting(plan.calibrated(arm.epsilon), lr, split)
        return
    for lam in fields["lambdas"]:
        plan = LangevinPlan(
            problem, arm.method, arm.comparison, "constant", lam, arm.steps, problem.n
        )
        yield langevin_setting(plan, arm.epsilon, split)


KIND = Kind(
    legacy(long_training),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
