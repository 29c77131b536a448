"""lp_fft: specs and records of kind `feature_quality`."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dpatlas.core import records
from dpatlas.core.facts import BackboneUsed, DataFields
from dpatlas.core.records import OverRuns, RunsFields, Typed
from dpatlas.papers.lp_fft.records.private import Count, Positive, PrivateFields

Strategy = Literal["fft", "lp-fft"]
Task = Literal["private", "public"]
TASKS: tuple[Task, ...] = ("private", "public")


class Spec(PrivateFields, RunsFields):
    """FFT and LP-FFT at one noise multiplier, for every head scale and rate.

    public_data: the pre-training task. lp_steps, lp_lr: of LP-FFT's first phase. at: steps after
    which features are evaluated. neighbours: number that vote. public_known, public_asked: numbers
    of records of the pre-training task that vote, and that are classified.
    """

    public_data: DataFields
    noise_multiplier: float = Field(ge=0)
    head_scales: list[Positive]
    feature_scale: Positive
    lrs: list[float]
    lp_lr: float
    steps: Count
    lp_steps: Count
    at: list[Annotated[int, Field(ge=0)]]
    neighbours: Count
    public_known: Count
    public_asked: Count

    @field_validator("lp_steps")
    @classmethod
    def _leaves_fft_a_step(cls, lp_steps: int, info: ValidationInfo) -> int:
        steps = info.data.get("steps", lp_steps + 1)
        if lp_steps >= steps:
            raise PydanticCustomError("steps", "less than steps = {steps}", {"steps": steps})
        return lp_steps

    @field_validator("at")
    @classmethod
    def _increases_up_to_steps(cls, at: list[int], info: ValidationInfo) -> list[int]:
        steps = info.data.get("steps")
        if sorted(set(at)) != at or (steps is not None and at and at[-1] > steps):
            message = "increasing steps, at most steps = {steps}"
            raise PydanticCustomError("steps", message, {"steps": steps})
        return at


class PublicTask(Typed):
    """Name of the data set that the backbone was trained on, and sha256 of its arrays."""

    name: str
    sha256: str


class Row(Typed):
    """A strategy at one head scale and learning rate of FFT, evaluated during training.

    private, public: nearest-neighbour accuracy on the private and on the pre-training task;
    accuracy: of the network on the private test records. All (runs, steps).
    """

    head_scale: float
    lr: float
    strategy: Strategy
    steps: list[int]
    private: OverRuns[list[float]]
    public: OverRuns[list[float]]
    accuracy: OverRuns[list[float]]

    def quality(self, task: Task) -> list[list[float]]:
        """Nearest-neighbour accuracy on a task, (runs, steps)."""
        return self.private if task == "private" else self.public


class Metrics(records.Metrics):
    """Numbers of private records of a run, the backbone, and a row for every arm.

    epsilon: the largest of any arm, over all steps of a run; None without privacy.
    """

    n_train: int
    n_test: int
    backbone: BackboneUsed
    public: PublicTask
    epsilon: float | None
    rows: list[Row]
