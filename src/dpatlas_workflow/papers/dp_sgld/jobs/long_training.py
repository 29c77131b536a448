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
from dpatlas_workflow.papers.dp_sgld.jobs import PACKAGES
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LangevinPlan
from dpatlas_workflow.papers.dp_sgld.jobs.regression import (
    arm_name,
    langevin,
    problem_of,
    regression_arms,
    reported,
    sgd,
)
from dpatlas_workflow.papers.dp_sgld.records.long_training import RECORD, LongTraining
from dpatlas_workflow.run.arms import Arm, Arms, Chosen

DP_SGD = "dp-sgd"
# The comparison under which each method's noise is calibrated.
METHODS = {"repaired-full": "guaranteed", DP_SGD: "guaranteed", "noisy-gd": "theorem"}


@dataclass(frozen=True)
class LongTrainingArm:
    """A method run for `steps` steps."""

    method: str
    comparison: str
    epsilon: float
    steps: int

    @property
    def name(self) -> str:
        """The name by which its settings are handed on."""
        return arm_name(self.method, self.epsilon, self.comparison, f"{self.steps} steps")


def long_training(job: Job) -> Outcome:
    """The test accuracies of every method after every number of steps.

    Raises InputError for a step size >= 1 / beta.
    """
    return reported(job, RECORD, arms_of(job), [("", job.fields.step_size)])


def arms_of(job: Job) -> Arms:
    """The arms of a job of this kind, or of its tuning."""
    return regression_arms(job, compared(job.fields), at)


def at(job: Job, arm: LongTrainingArm, chosen: Chosen) -> Arm:
    """The arm at this lambda or learning rate."""
    fields: LongTraining = job.fields
    problem = problem_of(job)
    if arm.method == DP_SGD:
        settings = {"max_grad_norm": fields.max_grad_norm, "lr": chosen["lr"]}
        sampler = FullBatch(problem.n)
        return sgd(vars(arm), problem, sampler, "replace_one", steps=arm.steps, **settings)
    of_arm = (arm.method, arm.comparison, "constant", chosen["lambda"], arm.steps, problem.n)
    return langevin(vars(arm), LangevinPlan(problem, *of_arm))


def compared(fields: LongTraining) -> list[LongTrainingArm]:
    """Every method after every number of steps."""
    return [
        LongTrainingArm(method, comparison, fields.epsilon, steps)
        for steps, (method, comparison) in product(fields.steps, METHODS.items())
    ]


KIND = Kind(long_training, record=RECORD, packages=PACKAGES, reads_images=False)
