"""features: which frozen backbones show which data sets to jobs, and what computing that takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpatlas.config.sizes import PARTS, array_mb, features_mb, inputs_of
from dpatlas.core.specs import Spec

# Records that go through a network together, and what a pass keeps of one at a time: in MB where
# it is stretched to 224 x 224 pixels, else in times its size. Measured, rounded up.
CHUNK = 1024
STRETCHED_MB, TIMES_ITS_SIZE = 8, 120


@dataclass(frozen=True)
class FrozenFeatures:
    """A data set, under its id, and the spec of the backbone that shows it."""

    data_id: str
    data: Mapping[str, Any]
    backbone: Spec

    @property
    def id(self) -> str:
        """Of the data set, and of the backbone."""
        return f"{self.data_id}-{self.backbone.id}"

    @property
    def disk_mb(self) -> float:
        """At most so much is written."""
        return features_mb(self.data)

    @property
    def memory_mb(self) -> int:
        """Peak memory of the job in MB: interpreter and torch, images, a chunk's activations."""
        records = min(CHUNK, max(self.data.get(part) or 0 for part in PARTS))
        stretched = self.backbone.fields["kind"] == "imported"
        image_mb = inputs_of(self.data) * 4 / 2**20
        pass_mb = STRETCHED_MB if stretched else TIMES_ITS_SIZE * image_mb
        return round(1100 + 2 * array_mb(self.data) + records * pass_mb)
