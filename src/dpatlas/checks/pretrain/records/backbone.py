"""Supervised training of a public backbone: spec and metrics."""

from typing import Annotated

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.facts import DataFields
from dpatlas.core.records import SpecFields, Typed

Count = Annotated[int, Field(ge=1)]


class Moved(Typed):
    """Shifts of up to `padding` pixels, and flips of half of the images."""

    padding: int = Field(ge=0)
    flip: bool


class Spec(SpecFields):
    """AdamW with the one-cycle schedule of the learning rate, whose peak is lr.

    options: arguments of the network's builder. declared_public: the reason why data that are not
    generated count as public. augmentation: how images are moved; None for not at all.
    """

    seed: int
    data: DataFields
    model: str
    options: dict[str, bool | int | list[int]]
    epochs: Count
    batch: Count
    lr: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    label_smoothing: Annotated[float, Field(ge=0, lt=1)]
    declared_public: str | None = None
    augmentation: Moved | None = None


class Metrics(records.Metrics):
    """The trained backbone. loss: (epochs,), mean over steps. accuracy: on held-out images.

    features: width of the last layer before the head. image_shape: channels, height, width.
    examples: images by class, as `jobs.examples` writes them; None for data of another scale.
    """

    n_train: int
    n_test: int
    classes: list[str]
    parameters: int
    features: int
    steps: int
    loss: list[float]
    accuracy: float
    backbone_sha256: str
    image_shape: list[int]
    examples: dict[str, list[str]] | None
