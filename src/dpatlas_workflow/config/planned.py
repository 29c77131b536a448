"""A planned job: what it reads, where its record goes, and what it asks a scheduler for."""

import shlex
from dataclasses import dataclass
from typing import Any

from dpatlas.base.specs import Spec


@dataclass(frozen=True)
class PlannedJob:
    """The job of one spec, by paths; a list is empty where the job needs no such thing.

    fields: the spec as the class of its kind. data, public_data: manifests of the data set that it
    trains on, and of one that it looks at beside. backbones: folders. features: the manifest of
    frozen features. tuning: the record that it waits for. device: cpu, cuda or auto, the latter two
    maybe with -tf32: cpu where a GPU gains nothing. memory_mb: to ask a scheduler for.
    """

    spec: Spec
    fields: Any
    record: str
    data: list[str]
    public_data: list[str]
    backbones: list[str]
    features: list[str]
    tuning: list[str]
    device: str
    memory_mb: int

    @property
    def weights(self) -> list[str]:
        """Manifests and weights of the backbones."""
        return [file for folder in self.backbones for file in weights_of(folder)]

    @property
    def arguments(self) -> str:
        """Command-line arguments for all that the job reads, quoted for a shell."""
        named = {
            "--data": self.data,
            "--public-data": self.public_data,
            "--backbone": self.backbones,
            "--features": [path.removesuffix("/manifest.json") for path in self.features],
            "--tuning": self.tuning,
        }
        return shlex.join(
            word for option, paths in named.items() for path in paths for word in (option, path)
        )


def weights_of(folder: str) -> list[str]:
    """A backbone's manifest and weights."""
    return [f"{folder}/manifest.json", f"{folder}/weights.npz"]
