"""Records of kind `simulation`: overlaps and risks of two-layer networks on single-index data.

polynomial, hermite: coefficients of the link s of unit variance, (degree + 1,), of powers and of
Hermite polynomials. information_exponent: least k >= 1 with a non-zero coefficient of He_k.
warnings: a sentence for each setting that the report's assumptions exclude.

`conditions`, in the order of the spec's points. mu: Gaussian-DP parameter of each layer's releases.
rate: eta_W. penalty: lambda. matrix_norm, direction_norm, head_norm: clip bounds, C_W of a gradient
in W, C of y x, C_a of a gradient in a; matrix_noise, direction_noise, head_noise: standard
deviation of the noise on every entry of a released mean of these. printed_noise: sigma_W of
Assumption 4.

`rows`, by condition, kind of features and run; None where features are not read out that way.
overlap, cosine: mean |cosine| and mean cosine of neurons with mu. risk_private, risk:
E (f(x) - s(<x, mu>))^2 after private and non-private descent; risk_floor: of the ridge solution.
clipped: share of the second layer's gradients that were clipped.
"""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.fields import Delta, Model, NoiseSource, Share, setting
from dpatlas.base.records import RecordShape, RunsFields

Inputs = Annotated[int, setting("d: dimension of the inputs.", ge=2, le=100_000)]
Records = Annotated[
    int,
    setting("n: records in each of the two data sets; more than d.", ge=3, le=100_000_000),
]
Neurons = Annotated[int, setting("p: neurons.", ge=1, le=1_000_000)]
Epsilon = Annotated[float, setting("epsilon of the released network.", gt=0, le=1e6)]


class Point(Model):
    """A condition; the epsilon is guaranteed."""

    d: Inputs
    n: Records
    p: Neurons
    epsilon: Epsilon


class ClipQuantiles(Model):
    """Quantiles of the norms in a public rehearsal at which each layer's gradients are clipped."""

    first: Share
    second: Share


class Algorithm(Model):
    """What all conditions of all sweeps share."""

    delta: Delta
    steps: int = setting(
        "T: steps of full-batch gradient descent on the second layer.", ge=1, le=100_000
    )
    penalty_per_neuron: Annotated[float, Field(gt=0, le=1e6)] | None = setting(
        "lambda / p of the ridge penalty; null for Assumption 4's lambda = p / d^(2 eps_n)."
    )
    clip_quantiles: ClipQuantiles
    sharing: Literal["split", "shared"] = setting(
        "Whether each person is in one of the two data sets, or both layers use one, so that their "
        "Gaussian parameters add in quadrature."
    )
    n_test: int = setting("Fresh records on which risks are measured.", ge=1, le=10_000_000)


class FeatureSimulationSpec(RunsFields, Algorithm):
    """A sweep of one link along an axis, or with axis "table" any conditions of one link.

    With axis "ladder" n and p are powers of d. polynomial: coefficients of the link, unscaled.
    """

    key: Literal["feature_learning"]
    kind: Literal["simulation"]
    seed: int
    noise_source: NoiseSource
    link: str
    polynomial: list[float]
    axis: Literal["n", "p", "d", "epsilon", "ladder", "table"]
    points: list[Point]

    @property
    def along(self) -> str:
        """The quantity that tells the conditions of a sweep apart: d on a ladder."""
        return "d" if self.axis == "ladder" else self.axis

    @property
    def vanishes(self) -> bool:
        """Whether epsilon falls along a ladder."""
        return self.axis == "ladder" and len({point.epsilon for point in self.points}) > 1


RECORD = RecordShape(
    FeatureSimulationSpec,
    version=2,
    facts="polynomial hermite degree information_exponent warnings",
    tables={
        "conditions": "d n p epsilon mu rate penalty matrix_norm direction_norm head_norm "
        "matrix_noise direction_noise head_noise printed_noise",
        "rows": "run d n p epsilon features overlap cosine risk_private risk risk_floor clipped",
    },
)
