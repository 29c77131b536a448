"""dp_sgld: the clip bound of every arm of DP-SGD in protocol, tried on a fixed part."""

from collections.abc import Mapping

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs.protocol import DP_SGD, arms_of, compared
from dpatlas_workflow.papers.dp_sgld.records.protocol_tuning import RECORD, ProtocolTuningSpec
from dpatlas_workflow.run.arms import Chosen
from dpatlas_workflow.run.tuning import tune


def protocol_tuning(job: Job) -> Outcome:
    """The clip bounds that DP-SGD tried, and those that it chose; other arms have no choice."""
    fields: ProtocolTuningSpec = job.fields
    methods = {arm.name: arm.method for arm in compared(fields)}

    def grid_of(name: str, chosen: Mapping[str, Chosen]) -> list[Chosen]:
        if methods[name] != DP_SGD:
            return [{}]
        return [{"max_grad_norm": bound} for bound in fields.clips]

    return tune(job, arms_of(job), grid_of)


KIND = Kind(
    protocol_tuning,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
