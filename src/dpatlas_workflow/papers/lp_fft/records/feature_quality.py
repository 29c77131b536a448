"""Records of kind `feature_quality`: quality of the features during FFT and LP-FFT.

`curves`, by head scale, learning rate of FFT, strategy, run and step: nearest-neighbour accuracy on
the `private` and on the pre-training task, `public`; accuracy of the network on the private test
records. epsilon: the largest of any arm, over all steps of a run; None without privacy. n_train,
n_test: numbers of private records of a run. public: name and sha256 of the backbone's images.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dpatlas.base.facts import DataFields
from dpatlas.base.fields import Model, Once, PositiveList, Rate, Updates, setting
from dpatlas.base.records import RecordShape, RunsFields
from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.records.private import FeatureScale, Noise, PrivateFields

Task = Literal["private", "public"]
TASKS: tuple[Task, ...] = ("private", "public")


class QualityFields(Model):
    """FFT and LP-FFT for every head scale and rate, and how their features are evaluated."""

    head_scales: PositiveList
    lrs: PositiveList
    lp_lr: Rate
    feature_scale: FeatureScale
    steps: Updates
    lp_steps: Updates
    at: Once[Annotated[int, Field(ge=0, le=1_000_000)]] = setting(
        "Steps after which features are evaluated, in increasing order.", min_length=2
    )
    neighbours: int = setting("Number of neighbours that vote.", ge=1, le=10_000)
    public_known: int = setting(
        "Number of public images among which neighbours are searched.", ge=1, le=10_000_000
    )
    public_asked: int = setting("Number of public images to classify.", ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _evaluates_within_its_steps(self) -> Self:
        if self.lp_steps >= self.steps:
            raise InputError("lp_steps", self.lp_steps, f"less than steps = {self.steps}")
        if sorted(self.at) != self.at or self.at[-1] > self.steps:
            raise InputError("at", self.at, f"increasing steps, at most steps = {self.steps}")
        return self


class FeatureQualitySpec(PrivateFields, RunsFields, QualityFields):
    """Runs at one noise multiplier; public_data: the pre-training task."""

    kind: Literal["feature_quality"]
    public_data: DataFields
    noise_multiplier: Noise


RECORD = RecordShape(
    FeatureQualitySpec,
    version=2,
    facts="n_train n_test backbone public epsilon",
    tables={"curves": "head_scale lr strategy run step private public accuracy"},
)
