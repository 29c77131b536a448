"""dp_sgld: the clip bound of every arm of DP-SGD in protocol, tried on a fixed part."""

from collections.abc import Sequence

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs import PACKAGES
from dpatlas_workflow.papers.dp_sgld.jobs.protocol import DP_SGD, arms_of, compared
from dpatlas_workflow.papers.dp_sgld.records.protocol_tuning import RECORD, ProtocolTuningSpec
from dpatlas_workflow.run.arms import Chosen
from dpatlas_workflow.run.tuning import tune


def protocol_tuning(job: Job) -> Outcome:
    """The clip bounds that DP-SGD tried, and those that it chose; other arms have no choice."""
    fields: ProtocolTuningSpec = job.fields
    bounds = [{"max_grad_norm": bound} for bound in fields.clips]
    grids: dict[str, Sequence[Chosen]] = {
        arm.name: bounds if arm.method == DP_SGD else [{}] for arm in compared(fields)
    }
    return tune(job, arms_of(job), lambda name, chosen: grids[name])


KIND = Kind(protocol_tuning, record=RECORD, packages=PACKAGES, reads_images=False)
