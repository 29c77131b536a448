"""Planned jobs: what each reads, where what it makes goes, and what it asks a scheduler for."""

import shlex
from dataclasses import dataclass
from typing import Any

from dpatlas.base.facts import DataFields
from dpatlas.base.specs import Spec
from dpatlas_workflow.config.sizes import PARTS, array_mb, features_mb, inputs_of

# Records that go through a network together, and the memory of a pass for each of them: in MB
# where images are resized to 224 x 224 pixels, else in multiples of its size. Measured, rounded up.
CHUNK = 1024
STRETCHED_MB, TIMES_ITS_SIZE = 8, 120


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


@dataclass(frozen=True)
class FrozenFeatures:
    """A data set, its id, and the spec and network of the backbone that computes its features."""

    data_id: str
    data: DataFields
    backbone: Spec
    network: Any

    @property
    def id(self) -> str:
        """Ids of the data set and of the backbone."""
        return f"{self.data_id}-{self.backbone.id}"

    @property
    def disk_mb(self) -> float:
        """Upper bound in MB on the files."""
        return features_mb(self.data)

    @property
    def memory_mb(self) -> int:
        """Peak memory of the job in MB: libraries, images, and the activations of a chunk."""
        records = min(CHUNK, max(getattr(self.data, part) or 0 for part in PARTS))
        stretched = self.network.kind == "imported"
        image_mb = inputs_of(self.data) * 4 / 2**20
        pass_mb = STRETCHED_MB if stretched else TIMES_ITS_SIZE * image_mb
        return round(1100 + 2 * array_mb(self.data) + records * pass_mb)
