"""Records of kind `umap`: pictures of the features during LP of several lengths, then FFT.

`labels`, by run: of the `points` test records drawn, a list. `panels`, by run, steps of LP and
moment of FFT: a picture after `fft_steps` of FFT. x, y: coordinates without unit, lists over
points. knn, silhouette: nearest-neighbour accuracy and silhouette of the features themselves.
accuracy: of the network on all test records. `budgets`, by steps of LP: epsilon of the whole
training; None without privacy.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dpatlas.base.fields import Model, Once, Rate, Updates, setting
from dpatlas.base.records import RecordShape, RunsFields
from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.records.private import (
    FeatureScale,
    HeadScale,
    Noise,
    PrivateFields,
)

Moment = Literal["before", "early", "late"]
MOMENTS: tuple[Moment, ...] = ("before", "early", "late")


class Pictures(Model):
    """LP of several lengths, each followed by FFT, and what is drawn of the features."""

    head_scale: HeadScale
    feature_scale: FeatureScale
    lp_steps: Once[Annotated[int, Field(ge=0, le=1_000_000)]] = setting(
        "Numbers of steps of LP before FFT.", min_length=1
    )
    fft_steps: Updates
    early: int = setting(
        "Steps of FFT after which the early picture is taken; at most fft_steps.",
        ge=1,
        le=1_000_000,
    )
    noise_lp: Noise = setting("Noise multiplier of LP.")
    noise_fft: Noise = setting("Noise multiplier of FFT.")
    lr_lp: Rate
    lr_fft: Rate
    neighbours: int = setting("Number of neighbours in UMAP and in the kNN vote.", ge=2, le=10_000)
    points: int = setting("Number of test records to draw.", ge=3, le=100_000)

    @model_validator(mode="after")
    def _is_early_within_fft(self) -> Self:
        if self.early > self.fft_steps:
            raise InputError("early", self.early, f"at most fft_steps = {self.fft_steps}")
        return self


class UmapSpec(PrivateFields, RunsFields, Pictures):
    """Runs of one backbone on one data set; lp_steps: a training each, 0 for FFT alone."""

    kind: Literal["umap"]


RECORD = RecordShape(
    UmapSpec,
    version=3,
    facts="n_train n_test backbone classes",
    tables={
        "labels": "run labels",
        "panels": "run lp_steps moment fft_steps x y knn silhouette accuracy",
        "budgets": "lp_steps epsilon",
    },
)
