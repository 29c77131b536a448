"""dp_sgld: accuracy against the number K of full-batch steps, at one epsilon for replace_one.

Every number of steps has its own noise and its own setting, which long_training_tuning chose.
    repaired-full  Langevin steps, accounting for the last iterate: the noise converges with K
    dp-sgd         clipped steps, accounting for all iterates: the noise grows like sqrt(K)
    noisy-gd       Langevin steps with the noise of Thm 3.2, which holds here and is not tight
"""

from dataclasses import dataclass
from itertools import product

from dpatlas.accounting.samplers import FullBatch
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LangevinPlan, RegressionProblem
from dpatlas_workflow.papers.dp_sgld.jobs.regression import (
    arm_name,
    langevin,
    problem_of,
    regression_arms,
    reported,
    sgd,
)
from dpatlas_workflow.papers.dp_sgld.jobs.regression_data import Bounded
from dpatlas_workflow.papers.dp_sgld.records.long_training import RECORD, LongTraining
from dpatlas_workflow.run.arms import Arms, ArmSetting, Chosen
from dpatlas_workflow.run.private_plan import DpSgdPlan

DP_SGD = "dp-sgd"
# The comparison under which each method's noise is calibrated.
METHODS = {"repaired-full": "guaranteed", DP_SGD: "guaranteed", "noisy-gd": "theorem"}
RELATION = "replace_one"


@dataclass(frozen=True)
class LongTrainingArm:
    """A method run for `steps` steps."""

    method: str
    comparison: str
    epsilon: float
    steps: int


def long_training(job: Job) -> Outcome:
    """The test accuracies of every method after every number of steps.

    Raises InputError for a step size >= 1 / beta.
    """
    problem = problem_of(job)
    return reported(job, arms_of(job, problem), RECORD, vars, problem.warnings())


def arms_of(job: Job, problem: RegressionProblem) -> Arms[LongTrainingArm, Bounded]:
    """The arms of a job of this kind, or of its tuning."""
    fields: LongTraining = job.fields

    def setting_of(arm: LongTrainingArm, chosen: Chosen) -> ArmSetting[Bounded]:
        if arm.method == DP_SGD:
            accounts = (problem.delta, RELATION, problem.accountant)
            plan = DpSgdPlan(FullBatch(problem.n), arm.steps, fields.max_grad_norm, *accounts)
            return sgd(plan.calibrated(arm.epsilon), chosen["lr"], problem.classes)
        langevin_plan = LangevinPlan(
            problem,
            arm.method,
            arm.comparison,
            "constant",
            chosen["lambda"],
            arm.steps,
            problem.n,
        )
        return langevin(langevin_plan, arm.epsilon)

    return regression_arms(job, compared(fields), name_of, setting_of)


def compared(fields: LongTraining) -> list[LongTrainingArm]:
    """Every method after every number of steps."""
    return [
        LongTrainingArm(method, comparison, fields.epsilon, steps)
        for steps, (method, comparison) in product(fields.steps, METHODS.items())
    ]


def name_of(arm: LongTrainingArm) -> str:
    """The name by which an arm's settings are handed on."""
    return arm_name(arm, arm.comparison, f"{arm.steps} steps")


KIND = Kind(
    long_training,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
