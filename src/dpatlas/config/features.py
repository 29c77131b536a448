"""features: which frozen backbones show which data sets to jobs, and what computing that takes."""

from dataclasses import dataclass

from dpatlas.config.sizes import PARTS, array_mb, features_mb, inputs_of
from dpatlas.core.facts import DataFields
from dpatlas.core.specs import Spec
from dpatlas.cost.counting import Backbone

# Records that go through a network together, and what a pass keeps of one at a time: in MB where
# it is stretched to 224 x 224 pixels, else in times its size. Measured, rounded up.
CHUNK = 1024
STRETCHED_MB, TIMES_ITS_SIZE = 8, 120


@dataclass(frozen=True)
class FrozenFeatures:
    """A data set, under its id, and the spec of the backbone that shows it, with its `network`."""

    data_id: str
    data: DataFields
    backbone: Spec
    network: Backbone

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
        records = min(CHUNK, max(getattr(self.data, part) or 0 for part in PARTS))
        stretched = self.network.kind == "imported"
        image_mb = inputs_of(self.data) * 4 / 2**20
        pass_mb = STRETCHED_MB if stretched else TIMES_ITS_SIZE * image_mb
        return round(1100 + 2 * array_mb(self.data) + records * pass_mb)
