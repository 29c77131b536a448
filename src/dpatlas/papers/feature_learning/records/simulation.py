"""Overlaps and risks of two-layer networks on single-index data: spec and metrics."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.records import OverRuns, RunsFields, Typed

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Point(Typed):
    """A condition: inputs d, records n of a data set, neurons p, and the guaranteed epsilon."""

    d: Count
    n: Count
    p: Count
    epsilon: Annotated[float, Field(gt=0)]


class ClipQuantiles(Typed):
    """Shares of rehearsed norms that lie below the clip bounds of the two layers."""

    first: Share
    second: Share


class Spec(RunsFields):
    """A sweep of one link along an axis, or with axis "table" any conditions of one link.

    With axis "ladder" n and p are powers of d.

    polynomial: coefficients of the link, before it is scaled. sharing: whether each layer has a
    data set of its own, with every person in one of them, or both layers use one.
    penalty_per_neuron: lambda / p, None for Assumption 4's.
    """

    seed: int
    noise_source: str
    link: str
    polynomial: list[float]
    axis: Literal["n", "p", "d", "epsilon", "ladder", "table"]
    points: list[Point]
    delta: Share
    steps: Count
    n_test: Count
    sharing: Literal["split", "shared"]
    clip_quantiles: ClipQuantiles
    penalty_per_neuron: Annotated[float, Field(ge=0)] | None

    @property
    def along(self) -> str:
        """The quantity that tells the conditions of a sweep apart: d on a ladder."""
        return "d" if self.axis == "ladder" else self.axis


class Link(Typed):
    """The link s of unit variance: coefficients of powers and Hermite polynomials, (degree + 1,).

    information_exponent: the least k >= 1 with a non-zero coefficient of He_k.
    """

    polynomial: list[float]
    hermite: list[float]
    degree: int
    information_exponent: int


class ClipBounds(Typed):
    """Clip bounds: C_W of a gradient in W, C of y x, C_a of a gradient in a."""

    matrix: float
    direction: float
    head: float


class Condition(Point):
    """A condition and its settings.

    mu: Gaussian-DP parameter of each layer's releases. rate: eta_W. penalty: lambda. matrix_noise,
    direction_noise, head_noise: standard deviation of the noise on every entry of a released mean.
    printed_noise: sigma_W of Assumption 4.
    """

    mu: float
    rate: float
    penalty: float
    max_norms: ClipBounds
    matrix_noise: float
    direction_noise: float
    head_noise: float
    printed_noise: float


class Measured(Typed):
    """Measures of networks, each (runs,), or None where the features are not read out that way.

    overlap, cosine: mean |cosine| and mean cosine of neurons with mu. risk_private, risk:
    E (f(x) - s(<x, mu>))^2 after private and non-private descent. risk_floor: of the ridge
    solution. clipped: share of the second layer's gradients that were clipped.
    """

    overlap: OverRuns[float]
    cosine: OverRuns[float]
    risk_private: OverRuns[float] | None = None
    risk: OverRuns[float] | None = None
    risk_floor: OverRuns[float] | None = None
    clipped: OverRuns[float] | None = None


class Row(Point, Measured):
    """Measures of one kind of features in a condition."""

    features: str


class Metrics(records.Metrics):
    """Rows by condition and kind of features; conditions in the order of the spec's points.

    warnings: a sentence for each setting that the report's assumptions exclude.
    """

    link: Link
    conditions: list[Condition]
    rows: list[Row]
    warnings: list[str]
