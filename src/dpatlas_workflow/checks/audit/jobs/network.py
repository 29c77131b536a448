"""Networks trained as `dpatlas train` trains them, or one with canaries, by which it is audited."""

from dpatlas.data.prepared import MANIFEST
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.train.inputs import Inputs
from dpatlas.train.settings import TrainSettings
from dpatlas.train.training import PACKAGES, TrainingBySettings
from dpatlas_workflow.checks.audit.records.network import RECORD, NetworkSpec, NetworkTraining


def train(job: Job) -> Outcome:
    """Train and test all networks of the spec."""
    fields: NetworkSpec = job.fields
    canaries = {"canaries": {"number": fields.canaries, "level": fields.level}}
    settings = TrainSettings.model_validate(
        {
            "data": MANIFEST,
            "seed": fields.seed,
            "noise_source": fields.noise_source,
            "runs": fields.runs,
            **(canaries if fields.canaries else {}),
            **fields.part(NetworkTraining),
        }
    )
    return TrainingBySettings(Inputs(settings, prepared=job.prepared)).outcome(job)


KIND = Kind(train, record=RECORD, packages=PACKAGES)
