"""Parts that records of several blocks share."""

from typing import Annotated

from pydantic import Field

from dpatlas.core.records import Number, Typed

# Bounds the repetition numbers of a search, of which every run has its own.
MAX_RUNS_PER_SETTING = 10_000
Runs = Annotated[int, Field(ge=1, lt=MAX_RUNS_PER_SETTING)]


class OwnSet(Typed):
    """Definition of a user's own data set: classes by name, (channels, height, width), scaling."""

    classes: list[str]
    image_shape: list[int]
    scaling: str
    resize: bool = False


class DataFields(Typed):
    """A data set as a spec names it: its name, classes, and numbers of records of each part."""

    name: str
    classes: list[int | str] | None = None
    n_train: int | None = None
    n_add: int | None = None
    n_test: int | None = None
    n_validation: int | None = None
    norm: Number | None = None
    selection: int | None = None
    own: OwnSet | None = None


class FeaturesUsed(Typed):
    """Features of a frozen backbone that a job trained on.

    id: of their folder. sha256: of their arrays. device: where they were computed.
    """

    id: str
    sha256: str
    device: str


class BackboneUsed(Typed):
    """A backbone that a job used: id of its run, sha256 of its weights.

    architecture: name of the network. source: where the features that trained a head came from.
    """

    id: str
    sha256: str
    architecture: str | None = None
    source: str | None = None


class TunedRow(Typed):
    """One arm of a search: its best setting, what choosing it cost, and its accuracies.

    relation: neighbours that the guarantee is for; None without one, as is guaranteed_by.
    settings_tried: points of the arm's grid. trials: trainings whose validation scores were
    compared. with_tuning_epsilon, all_runs_epsilon: of the trials with one reported run, and with
    all of them, by composition; None where nothing is guaranteed. validation_accuracy: of the best
    setting, mean over its trials. accuracy: share of test records that each reported run
    classified correctly, (runs,).
    """

    method: str
    batch: int
    sampler: str
    relation: str | None
    guaranteed_by: str | None
    settings_tried: int
    trials: int
    with_tuning_epsilon: float | None
    all_runs_epsilon: float | None
    validation_accuracy: float
    accuracy: list[float]
