"""max_information: specs and metrics of kind `simulation`, Lemma 10 on simulated sums."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.records import Number, SpecFields, Typed

Law = Literal["signs", "rare-signs", "sphere", "axes"]


class Spec(SpecFields):
    """`draws` sums of m vectors for every law and nu = m zeta^2 / sigma^2; ys: values of nu x."""

    kind: Literal["simulation"]
    seed: int
    laws: list[Law]
    nus: list[Annotated[Number, Field(gt=0)]]
    ys: list[Annotated[Number, Field(ge=0, lt=0.5)]]
    m: int = Field(ge=1)
    draws: int = Field(ge=2)


class Moment(Typed):
    """E exp(x ||G - mu||^2) at y = nu x: `simulated`, with its standard error, and two bounds."""

    law: Law
    nu: Number
    x: float
    y: Number
    simulated: float
    standard_error: float
    lemma_10: float
    tight: float


class Metrics(records.Metrics):
    """A row for every law, nu and y; each of `draws` sums has m vectors."""

    m: int
    draws: int
    rows: list[Moment]
