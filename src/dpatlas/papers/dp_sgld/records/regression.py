"""dp_sgld: the shared part of specs and metrics of softmax regression on bounded features."""

from typing import Literal

from dpatlas.core.facts import BackboneUsed, FeaturesUsed
from dpatlas.core.records import Metrics, OverRuns
from dpatlas.papers.dp_sgld.records import Positive
from dpatlas.papers.dp_sgld.records.trained import TrainingSpec

Features = Literal["penultimate", "softmax", "raw"]
Comparison = Literal["published", "theorem", "guaranteed"]


class RegressionFields(TrainingSpec):
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
    """What the runs saw.

    n_train, n_test: numbers of records of a run. inputs: dimension of a record. scaled_down:
    training records of each run that were longer than the declared norm, or not finite.
    mean_eigenvalue: largest eigenvalue of mean x x^T over each run's training records; it is
    private, and nothing is calibrated by it. backbone, features: None with raw records; features
    None where runs draw records of their own. warnings: about the settings.
    """

    n_train: int
    n_test: int
    inputs: int
    classes: int
    scaled_down: OverRuns[int]
    mean_eigenvalue: OverRuns[float]
    backbone: BackboneUsed | None
    features: FeaturesUsed | None
    warnings: list[str]
