"""dp_sgld: the clip bound of every arm of DP-SGD in protocol, tried on a fixed part."""

from collections.abc import Mapping

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs.protocol import DP_SGD, ProtocolArm, arms_of
from dpatlas_workflow.papers.dp_sgld.jobs.regression import in_words
from dpatlas_workflow.papers.dp_sgld.records.protocol_tuning import RECORD, ProtocolTuningSpec
from dpatlas_workflow.run.arms import Chosen
from dpatlas_workflow.run.tuning import Tuning


def protocol_tuning(job: Job) -> Outcome:
    """The clip bounds that DP-SGD tried, and those that it chose; other arms have no choice."""
    fields: ProtocolTuningSpec = job.fields

    def grid_of(arm: ProtocolArm, chosen: Mapping[str, Chosen]) -> list[Chosen]:
        if arm.method != DP_SGD:
            return [{}]
        return [{"max_grad_norm": bound} for bound in fields.clips]

    return Tuning(job, arms_of(job), grid_of).outcome(*in_words(fields))


KIND = Kind(
    protocol_tuning,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
