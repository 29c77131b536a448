"""lp_fft: specs and records of kind `umap`."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dpatlas.core import records
from dpatlas.core.facts import BackboneUsed
from dpatlas.core.records import OverRuns, RunsFields, Typed
from dpatlas.papers.lp_fft.records.private import Count, Positive, PrivateFields

Moment = Literal["before", "early", "late"]
MOMENTS: tuple[Moment, ...] = ("before", "early", "late")


class Spec(PrivateFields, RunsFields):
    """LP of several lengths, each followed by FFT.

    lp_steps: one training each; 0 for FFT alone. early: steps of FFT before the second picture.
    neighbours: in UMAP and in the kNN vote. points: number of test records drawn.
    """

    head_scale: Positive
    feature_scale: Positive
    lp_steps: list[Annotated[int, Field(ge=0)]]
    fft_steps: Count
    early: Count
    noise_lp: float
    noise_fft: float
    lr_lp: float
    lr_fft: float
    neighbours: Count
    points: int = Field(ge=3)

    @field_validator("early")
    @classmethod
    def _within_fft(cls, early: int, info: ValidationInfo) -> int:
        steps = info.data.get("fft_steps", early)
        if early > steps:
            raise PydanticCustomError("steps", "at most fft_steps = {steps}", {"steps": steps})
        return early


class Panel(Typed):
    """A picture of the test records after `lp_steps` of LP and `fft_steps` of FFT.

    x, y: coordinates without unit, (runs, points). knn, silhouette: nearest-neighbour accuracy and
    silhouette of the features themselves. accuracy: of the network on all test records. All by run.
    """

    lp_steps: int
    moment: Moment
    fft_steps: int
    x: OverRuns[list[float]]
    y: OverRuns[list[float]]
    knn: OverRuns[float]
    silhouette: OverRuns[float]
    accuracy: OverRuns[float]


class Spent(Typed):
    """Epsilon of the whole training with `lp_steps` of LP; None without privacy."""

    lp_steps: int
    epsilon: float | None


class Metrics(records.Metrics):
    """Numbers of records, the backbone, classes by name, labels (runs, points), panels, budgets."""

    VERSION: ClassVar[int] = 2

    n_train: int
    n_test: int
    backbone: BackboneUsed
    classes: list[str]
    labels: OverRuns[list[int]]
    panels: list[Panel]
    budgets: list[Spent]
