"""dp_sgld: lambda or learning rate of every arm of long_training, tried on a fixed part."""

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs import PACKAGES
from dpatlas_workflow.papers.dp_sgld.jobs.long_training import DP_SGD, arms_of, compared
from dpatlas_workflow.papers.dp_sgld.records.long_training_tuning import (
    RECORD,
    LongTrainingTuningSpec,
)
from dpatlas_workflow.run.tuning import tune


def long_training_tuning(job: Job) -> Outcome:
    """The settings that every arm tried, and those that it chose."""
    fields: LongTrainingTuningSpec = job.fields
    rates, lambdas = [{"lr": lr} for lr in fields.lrs], [{"lambda": lam} for lam in fields.lambdas]
    grids = {arm.name: rates if arm.method == DP_SGD else lambdas for arm in compared(fields)}
    return tune(job, arms_of(job), lambda name, chosen: grids[name])


KIND = Kind(long_training_tuning, record=RECORD, packages=PACKAGES, reads_images=False)
