"""dp_sgld: the learning rate of every arm of finetune, tried on a fixed part."""

from collections.abc import Mapping

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs.finetune import FinetuneArm, arms_of, in_words
from dpatlas_workflow.papers.dp_sgld.records.finetune_tuning import RECORD, FinetuneTuningSpec
from dpatlas_workflow.run.arms import Chosen
from dpatlas_workflow.run.tuning import Tuning


def finetune_tuning(job: Job) -> Outcome:
    """The learning rates that every arm tried, and those that it chose."""
    fields: FinetuneTuningSpec = job.fields

    def grid_of(arm: FinetuneArm, chosen: Mapping[str, Chosen]) -> list[Chosen]:
        return [{"lr": lr} for lr in fields.lrs]

    return Tuning(job, arms_of(job), grid_of).outcome(*in_words(job))


KIND = Kind(
    finetune_tuning,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
)
