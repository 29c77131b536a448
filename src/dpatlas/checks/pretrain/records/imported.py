"""A backbone with weights that others trained and published: spec and metrics."""

from dpatlas.core import records
from dpatlas.core.records import SpecFields, Typed


class Spec(SpecFields):
    """A network with published weights. sha256: first digits that the file's sha256 must have."""

    source: str
    model: str
    options: dict[str, bool | int | list[int]]
    image_shape: list[int]
    sha256: str | None = None


class WeightsFile(Typed):
    """The file of the weights. address: where it is published; None for one the config names."""

    file: str
    address: str | None
    sha256: str


class Metrics(records.Metrics):
    """The imported backbone. classes: number of classes of the published head, 0 without a head.

    difference: largest difference between the features of the published network and of this one on
    made-up records, as a share of the largest feature. image_shape: channels, height, width.
    """

    weights: WeightsFile
    classes: int
    features: int
    parameters: int
    image_shape: list[int]
    difference: float
    backbone_sha256: str
