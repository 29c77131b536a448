"""dp_sgld: the shared part of specs and metrics of softmax regression on bounded features."""

from typing import Literal

from dpatlas.core.facts import BackboneUsed, FeaturesUsed
from dpatlas.core.records import Metrics
from dpatlas.papers.dp_sgld.records import Positive
from dpatlas.papers.dp_sgld.records.trained import TrainedSpec

Features = Literal["penultimate", "softmax", "raw"]
Comparison = Literal["published", "theorem", "guaranteed"]


class RegressionSpec(TrainedSpec):
    """Settings of softmax regression.

    normalise: whether every record is scaled to `feature_norm`, the public bound on records.
    step_size: the first one, in units of 1 / beta. radius: of the ball that iterates are projected
    onto; None for the theorem's.
    """

    features: Features
    normalise: bool
    feature_norm: Positive
    step_size: Positive = 0.5
    radius: Positive | None = None


class RegressionMetrics(Metrics):
    """The data of a regression.

    n_train, n_validation, n_test: numbers of records. inputs: dimension of a record. scaled_down:
    training records that were longer than the declared norm, or not finite. mean_eigenvalue:
    largest eigenvalue of mean x x^T over the training records; it is private, and nothing is
    calibrated by it. backbone, features: None with raw records. warnings: about the settings.
    """

    n_train: int
    n_validation: int
    n_test: int
    inputs: int
    classes: int
    scaled_down: int
    mean_eigenvalue: float
    backbone: BackboneUsed | None
    features: FeaturesUsed | None
    warnings: list[str]
