"""dp_sgld: the learning rate of every arm of finetune, tried on a fixed part."""

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs import PACKAGES
from dpatlas_workflow.papers.dp_sgld.jobs.finetune import arms_of
from dpatlas_workflow.papers.dp_sgld.records.finetune_tuning import RECORD, FinetuneTuningSpec
from dpatlas_workflow.run.tuning import tune


def finetune_tuning(job: Job) -> Outcome:
    """The learning rates that every arm tried, and those that it chose."""
    fields: FinetuneTuningSpec = job.fields
    grid = [{"lr": lr} for lr in fields.lrs]
    return tune(job, arms_of(job), lambda name, chosen: grid)


KIND = Kind(finetune_tuning, record=RECORD, packages=PACKAGES)
