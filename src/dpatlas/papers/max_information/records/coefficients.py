"""max_information: specs and metrics of kind `coefficients`, Fig. 1."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.records import Number, SpecFields, Typed

Level = Annotated[Number, Field(gt=0, lt=1)]


class Spec(SpecFields):
    """alphas: of Prop. 1. betas: levels of the max-information."""

    kind: Literal["coefficients"]
    alphas: list[Annotated[Number, Field(gt=0)]]
    betas: list[Level]


class Curve(Typed):
    """Coefficients at one alpha for all levels `beta`; each list has an entry per level.

    leading: coefficient of m s^2 / sigma^2. root: coefficient of sqrt(m) s / sigma. pure_dp_*: of
    pure privacy at delta = beta.
    """

    alpha: Number
    beta: list[float]
    gaussian_leading: list[float]
    gaussian_root: list[float]
    pure_dp_leading: list[float]
    pure_dp_root: list[float]


class Metrics(records.Metrics):
    """A curve for every alpha of `alphas`, in their order."""

    alphas: list[Number]
    curves: list[Curve]
