"""Accuracy of frozen features on private data: spec and metrics."""

from typing import Annotated

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.facts import DataFields
from dpatlas.core.records import SpecFields, Typed

Count = Annotated[int, Field(ge=1)]


class Spec(SpecFields):
    """`splits` random splits of the data, each with n_test test records. backbones: run ids."""

    seed: int
    data: DataFields
    backbones: list[str]
    n_test: Count
    splits: Count
    neighbours: Count


class Row(Typed):
    """Accuracies on the test records, (splits,), from raw pixels or from a backbone's features.

    backbone: id of its run. source: data that it was trained on. features: number of features.
    zero_shot: accuracy of the unchanged head, None where its classes do not cover the data's. knn,
    logistic: accuracies of nearest neighbours and of logistic regression.
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

    examples: images of the data by class, as `jobs.examples` writes them; None for data of another
    scale.
    """

    n_train: int
    n_test: int
    rows: list[Row]
    classes: list[str]
    image_shape: list[int]
    examples: dict[str, list[str]] | None
