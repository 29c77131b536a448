"""dp_sgld, Tables 1 and 2 as the paper ran them: equal steps, epochs and L2 term for all methods.

Sec. 5.2: DP-SGLD, DP-SGD and SGD share step sizes, constant or decreasing, and number of epochs,
without momentum; other settings are tuned. In the authors' public settings lambda is nearly always
the same for all, the noise of DP-SGLD follows from Thm 3.2 with K = epochs, and the clip bound of
DP-SGD is tuned: protocol_tuning does that here, beforehand. Beside it, DP-SGD without the L2 term.

    eta_k = step_size / beta, or 1 / (beta / step_size + lambda k / 2) where steps decrease
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dpatlas.accounting.samplers import Poisson
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
from dpatlas_workflow.papers.dp_sgld.records.protocol import RECORD, ProtocolFields
from dpatlas_workflow.run.arms import Arm, Arms, Chosen

DP_SGLD, DP_SGD, NO_DP = "dp-sgld", "dp-sgd", "no-dp"


@dataclass(frozen=True)
class ProtocolArm:
    """A method with the steps of a reading; epsilon is None without privacy.

    l2: whether lambda times the weights is added to the gradient.
    """

    method: str
    reading: str
    schedule: str
    epsilon: float | None
    l2: bool = True

    @property
    def name(self) -> str:
        """The name by which its settings are handed on."""
        without = None if self.l2 else "without L2 term"
        steps = (self.reading, f"{self.schedule} steps")
        return arm_name(self.method, self.epsilon, without, *steps)


def protocol(job: Job) -> Outcome:
    """The test accuracies of every arm, of its last iterate and of its best epoch.

    Raises InputError for a step size >= 1 / beta.
    """
    fields: ProtocolFields = job.fields
    step_sizes = [(f"{reading.name}: ", reading.step_size) for reading in fields.readings]
    return reported(job, RECORD, arms_of(job), step_sizes)


def compared(fields: ProtocolFields) -> Iterator[ProtocolArm]:
    """Every arm, by reading and schedule."""
    for reading in fields.readings:
        for schedule in reading.schedules:
            steps = (reading.name, schedule)
            yield ProtocolArm(DP_SGLD, *steps, fields.epsilon)
            yield ProtocolArm(DP_SGD, *steps, fields.epsilon)
            if reading.without_l2:
                yield ProtocolArm(DP_SGD, *steps, fields.epsilon, l2=False)
            yield ProtocolArm(NO_DP, *steps, None)


def arms_of(job: Job) -> Arms:
    """The arms of a job of this kind, or of its tuning."""
    return regression_arms(job, compared(job.fields), at)


def at(job: Job, arm: ProtocolArm, chosen: Chosen) -> Arm:
    """The arm at this clip bound, the spec's where it chose none."""
    fields: ProtocolFields = job.fields
    (reading,) = (reading for reading in fields.readings if reading.name == arm.reading)
    problem = problem_of(job, reading.step_size)
    steps_of = (arm.schedule, reading.lam, fields.epochs, fields.batch)
    shared = LangevinPlan(problem, DP_SGLD, "published", *steps_of)
    if arm.method == DP_SGLD:
        return langevin(vars(arm), shared, every_epoch=True)
    sampler, rate = Poisson(problem.n, fields.batch), shared.rates[0]
    return sgd(
        vars(arm),
        problem,
        sampler,
        "add_remove",
        max_grad_norm=chosen.get("max_grad_norm", fields.max_grad_norm),
        steps=fields.epochs * sampler.steps_per_epoch,
        lr=rate,
        every_epoch=True,
        weight_decay=reading.lam if arm.l2 else 0.0,
        lr_decay=rate * reading.lam / 2 if arm.schedule == "decreasing" else 0.0,
    )


KIND = Kind(protocol, record=RECORD, packages=PACKAGES, reads_images=False)
