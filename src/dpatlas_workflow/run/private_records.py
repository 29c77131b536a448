"""Checks of a job's private records and of the public backbone that it uses."""

from dpatlas.data.features import Features
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job
from dpatlas.models.backbone import Backbone, load


def load_backbone(job: Job) -> Backbone:
    """The one backbone that the spec names."""
    if len(job.backbones) != 1:
        found = f"{len(job.backbones)} folders"
        raise InputError("--backbone", found, "one, to take features from")
    backbone = load(job.backbones[0])
    training, wanted = backbone.manifest["training"], job.spec.fields["backbone"]
    if training["spec_id"] != wanted:
        raise InputError("--backbone", training["spec_id"], str(wanted))
    check_fits(backbone, job.prepared)
    return backbone


def check_fits(backbone: Backbone, data: Prepared) -> None:
    """InputError for data whose scaling or image shape differs from the backbone's."""
    training = backbone.manifest["training"]
    name = f"backbone {training['spec_id']}"
    found, trained = data.manifest["preprocessing"], training["data"]["preprocessing"]
    if found != trained:
        raise InputError("data", f"preprocessing {found}", f"{trained}, as of {name}")
    shape, taken = list(data.image_shape), list(backbone.manifest["image_shape"])
    if shape != taken:
        raise InputError("data", f"images of shape {shape}", f"{taken}, as {name} takes")


def frozen_features(job: Job, backbone: Backbone) -> Features:
    """The backbone's features of the job's data; InputError without them or from another one."""
    if job.features is None:
        raise InputError("--features", "nothing", "the folder of the backbone's features")
    job.features.check("backbone", backbone.sha256)
    return job.features


def identity(backbone: Backbone) -> dict[str, str]:
    """Id and checksum of the backbone, for a record."""
    return {"id": backbone.manifest["training"]["spec_id"], "sha256": backbone.sha256}
