"""A backbone that others trained and published: spec and metrics."""

from dpatlas.core import records
from dpatlas.core.records import SpecFields, Typed


class Spec(SpecFields):
    """A network with published weights. sha256: the first digits that their file should have."""

    source: str
    model: str
    options: dict[str, bool | int | list[int]]
    image_shape: list[int]
    sha256: str | None = None


class WeightsFile(Typed):
    """The file that was read; address: None for one that the config named."""

    file: str
    address: str | None
    sha256: str


class Metrics(records.Metrics):
    """The imported backbone. classes: of the published head, 0 without one.

    difference: largest of the features of made-up records between the published network and this
    one, as a share of the largest feature. image_shape: channels, height, width.
    """

    weights: WeightsFile
    classes: int
    features: int
    parameters: int
    image_shape: list[int]
    difference: float
    backbone_sha256: str
