"""What frozen features are worth on private data: spec and metrics."""

from typing import Annotated

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.facts import DataFields
from dpatlas.core.records import SpecFields, Typed

Count = Annotated[int, Field(ge=1)]


class Spec(SpecFields):
    """`splits` of the data, each with n_test records to test on. backbones: ids of their runs."""

    seed: int
    data: DataFields
    backbones: list[str]
    n_test: Count
    splits: Count
    neighbours: Count


class Row(Typed):
    """Accuracies on the test records, (splits,), of raw pixels or of a backbone's features.

    backbone: id of its run. source: data that it was trained on. features: their number.
    zero_shot: of the head as it is, None where its classes do not cover the data's. knn, logistic:
    of nearest neighbours and logistic regression.
    """

    backbone: str
    architecture: str | None
    source: str | None
    sha256: str | None
    features: int
    zero_shot: list[float] | None
    knn: list[float]
    logistic: list[float]


class Metrics(records.Metrics):
    """Rows: raw pixels first, then the spec's backbones. image_shape: channels, height, width.

    examples: images of the data by class, as `jobs.backbone.examples` writes them; None for data of
    a scale that it cannot write.
    """

    n_train: int
    n_test: int
    rows: list[Row]
    classes: list[str]
    image_shape: list[int]
    examples: dict[str, list[str]] | None
