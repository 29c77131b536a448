"""max_information: specs and metrics of kind `kappa`, Fig. 2."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.records import Number, SpecFields, Typed

Count = Annotated[int, Field(ge=1)]
Level = Annotated[Number, Field(gt=0, lt=1)]
Positive = Annotated[Number, Field(gt=0)]
Axis = Literal["E", "T", "delta", "n", "zeta_over_sigma"]


class Base(Typed):
    """The setting where all panels meet: records n, batches of m, clip zeta, noise sigma, epochs E.

    delta: of Theorem 2, where beta = delta / 2.
    """

    n: Count
    m: Count
    zeta: Positive
    sigma: Positive
    E: Count
    delta: Level


class Axes(Typed):
    """Values along each axis, None for one that is left out; panels have the order of fields."""

    E: list[Count] | None = None
    T: list[Count] | None = None
    delta: list[Level] | None = None
    n: list[Count] | None = None
    zeta_over_sigma: list[Positive] | None = None


class Spec(SpecFields):
    """One panel for each of `axes`, the rest as in `base`."""

    kind: Literal["kappa"]
    base: Base
    axes: Axes


class Panel(Typed):
    """kappa / n by its form, nats per record, at every value x of an axis; each list is (x,).

    None is beyond all numbers. confidence: log(4 sqrt(n) / delta) / n.
    """

    axis: Axis
    x: list[Number]
    optimised: list[float | None]
    explicit: list[float | None]
    tight: list[float | None]
    repaired: list[float | None]
    confidence: list[float]


class Metrics(records.Metrics):
    """base: as in the spec."""

    base: Base
    panels: list[Panel]
