"""Features of data sets by frozen backbones, and the memory and disk that computing them takes."""

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
