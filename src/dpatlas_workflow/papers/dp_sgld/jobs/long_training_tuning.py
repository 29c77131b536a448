"""dp_sgld: lambda or learning rate of every arm of long_training, tried on a fixed part."""

from collections.abc import Mapping

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs.long_training import (
    DP_SGD,
    arms_of,
    compared,
)
from dpatlas_workflow.papers.dp_sgld.records.long_training_tuning import (
    RECORD,
    LongTrainingTuningSpec,
)
from dpatlas_workflow.run.arms import Chosen
from dpatlas_workflow.run.tuning import tune


def long_training_tuning(job: Job) -> Outcome:
    """The settings that every arm tried, and those that it chose."""
    fields: LongTrainingTuningSpec = job.fields
    methods = {arm.name: arm.method for arm in compared(fields)}

    def grid_of(name: str, chosen: Mapping[str, Chosen]) -> list[Chosen]:
        if methods[name] == DP_SGD:
            return [{"lr": lr} for lr in fields.lrs]
        return [{"lambda": lam} for lam in fields.lambdas]

    return tune(job, arms_of(job), grid_of)


KIND = Kind(
    long_training_tuning,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
