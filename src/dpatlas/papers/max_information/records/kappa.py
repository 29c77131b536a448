"""max_information: specs and metrics of kind `kappa`, Fig. 2."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.records import Number, SpecFields, Typed

Count = Annotated[int, Field(ge=1)]
Level = Annotated[Number, Field(gt=0, lt=1)]
Positive = Annotated[Number, Field(gt=0)]
Axis = Literal["E", "T", "delta", "n", "n_at_T", "zeta_over_sigma"]


class Base(Typed):
    """The setting in which all panels agree.

    n: records. m: records in a batch. zeta: clip bound. sigma: standard deviation of the noise. E:
    epochs. delta: failure probability of Theorem 2, where beta = delta / 2.
    """

    n: Count
    m: Count
    zeta: Positive
    sigma: Positive
    E: Count
    delta: Level


class Axes(Typed):
    """Values along each axis, None for no panel; panels are in the order of the fields.

    n: at the batch size of the base, T = floor(n / m). n_at_T: numbers of records at the T of the
    base, m = floor(n / T).
    """

    E: list[Count] | None = None
    T: list[Count] | None = None
    delta: list[Level] | None = None
    n: list[Count] | None = None
    n_at_T: list[Count] | None = None
    zeta_over_sigma: list[Positive] | None = None


class Spec(SpecFields):
    """One panel for each of `axes`, the rest as in `base`."""

    kind: Literal["kappa"]
    base: Base
    axes: Axes


class Panel(Typed):
    """kappa / n by form, nats per record, at every value x of an axis; each list is (x,).

    None stands for infinity. confidence: log(4 sqrt(n) / delta) / n.
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
