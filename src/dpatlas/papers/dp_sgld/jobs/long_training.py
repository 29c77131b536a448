"""dp_sgld: accuracy against the number K of full-batch steps, at one epsilon for replace_one.

Every number of steps has its own noise and its own setting, tuned on the validation records.
    repaired-full  Langevin steps, accounting for the last iterate: the noise converges with K
    dp-sgd         clipped steps, accounting for all iterates: the noise grows like sqrt(K)
    noisy-gd       Langevin steps with the noise of Thm 3.2, which holds here and is not tight
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.jobs.search import Setting
from dpatlas.papers.dp_sgld.jobs.arms import LangevinPlan, Problem
from dpatlas.papers.dp_sgld.jobs.regression import (
    arm_name,
    langevin_setting,
    problem_of,
    regression_ledger,
    regression_search,
    sgd_setting,
)
from dpatlas.papers.dp_sgld.jobs.regression_data import Split, load_split
from dpatlas.papers.dp_sgld.records.long_training import LangevinArm, Metrics, SgdArm, Spec
from dpatlas.privacy.samplers import FullBatch

DP_SGD = "dp-sgd"
# The comparison under which each method's noise is calibrated.
METHODS = {"repaired-full": "guaranteed", DP_SGD: "guaranteed", "noisy-gd": "theorem"}
RELATION = "replace_one"


@dataclass(frozen=True)
class Arm:
    """A method run for `steps` steps."""

    method: str
    comparison: str
    epsilon: float
    steps: int


def long_training(job: Job) -> Outcome:
    """Every method after every number of steps at its best setting, with its test accuracies.

    Raises InputError for a step size >= 1 / beta.
    """
    fields: Spec = job.fields
    split = load_split(job)
    problem = problem_of(job, split)
    arms = [
        Arm(method, comparison, fields.epsilon, steps)
        for steps, (method, comparison) in product(fields.steps, METHODS.items())
    ]
    search = regression_search(
        job,
        arms,
        lambda arm: list(settings_of(arm, fields, problem, split)),
        row_of=row_of,
        named=lambda row: arm_name(row, row.comparison),
    )
    metrics = Metrics(**split.facts(), warnings=problem.warnings(), rows=search.run())
    return Outcome(metrics, regression_ledger(search))


def row_of(values: dict[str, Any]) -> LangevinArm | SgdArm:
    """A row of the record."""
    return (SgdArm if values["method"] == DP_SGD else LangevinArm)(**values)


def settings_of(arm: Arm, fields: Spec, problem: Problem, split: Split) -> Iterator[Setting]:
    """One setting per lambda, or per learning rate."""
    if arm.method == DP_SGD:
        dp_sgd = DpSgdPlan(
            FullBatch(problem.n),
            arm.steps,
            fields.max_grad_norm,
            problem.delta,
            RELATION,
            problem.accountant,
        )
        for lr in fields.lrs:
            yield sgd_setting(dp_sgd.calibrated(arm.epsilon), lr, split)
        return
    for lam in fields.lambdas:
        plan = LangevinPlan(
            problem, arm.method, arm.comparison, "constant", lam, arm.steps, problem.n
        )
        yield langevin_setting(plan, arm.epsilon, split)


KIND = Kind(
    long_training,
    spec=Spec,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
