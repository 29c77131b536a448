"""The private records of a job, and the public backbone that it takes."""

from collections.abc import Sequence
from pathlib import Path

from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.experiments.job import Job
from dpatlas.models.backbone import Backbone, load

PARTS = ("train", "validation", "test")


def check_parts(data: Prepared) -> None:
    """InputError unless there are records to train, tune and test on."""
    for part in PARTS:
        if len(getattr(data, f"y_{part}")) == 0:
            raise InputError(f"n_{part}", 0, "at least 1")


def load_backbone(job: Job, folders: Sequence[Path]) -> Backbone:
    """The one backbone that the spec names."""
    if len(folders) != 1:
        raise InputError("--backbone", f"{len(folders)} folders", "one, to take features from")
    backbone = load(folders[0])
    training, wanted = backbone.manifest["training"], job.spec.fields["backbone"]
    if training["spec_id"] != wanted:
        raise InputError("--backbone", training["spec_id"], str(wanted))
    found, trained = job.data.manifest["preprocessing"], training["data"]["preprocessing"]
    if found != trained:
        raise InputError("data", f"preprocessing {found}", f"{trained}, as of backbone {wanted}")
    shape, taken = list(job.data.image_shape), list(backbone.manifest["image_shape"])
    if shape != taken:
        raise InputError("data", f"images of shape {shape}", f"{taken}, as backbone {wanted} takes")
    return backbone


def identity(backbone: Backbone) -> dict[str, str]:
    """Which backbone it was, for a record."""
    return {"id": backbone.manifest["training"]["spec_id"], "sha256": backbone.sha256}
