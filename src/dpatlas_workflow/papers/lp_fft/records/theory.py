"""Types that the specs of lp_fft's simulated theory share."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.fields import setting

# Noise of linear networks: equal in both layers, or sqrt(d) times larger in the head.
LayerNoise = Literal["uniform", "layer-wise"]
NOISES: tuple[LayerNoise, ...] = ("uniform", "layer-wise")
Records = Annotated[int, setting("Records, half of each class.", ge=2, le=100_000)]
Inputs = Annotated[int, setting("Dimension of a record.", ge=2, le=100_000)]
Hidden = Annotated[
    int,
    setting(
        "Number h of hidden neurons: fewer than the inputs in a linear network, even in a ReLU "
        "network.",
        ge=1,
        le=100_000,
    ),
]
Degrees = Annotated[
    float,
    setting(
        "Largest angle in degrees between a record or feature and the axis of its class.",
        gt=0,
        lt=45,
    ),
]
Positive = Annotated[float, Field(gt=0)]
HeadVariance = Annotated[float, setting("Variance beta_h of the head's initial weights.", gt=0)]
SolverStep = Annotated[float, setting("Step size of the solver.", gt=0)]
Variance = Annotated[float, setting("Variance of the noise, sigma^2.", ge=0)]
Paths = Annotated[int, setting("Simulated paths of the diffusion.", ge=2, le=10_000_000)]
Networks = Annotated[int, setting("Number of networks drawn.", ge=1, le=10_000_000)]
SeveralNetworks = Annotated[int, setting("Number of networks drawn.", ge=2, le=10_000_000)]
SolverSteps = Annotated[int, setting("Number of steps.", ge=1, le=10_000_000)]
Every = Annotated[int, setting("Steps between measurements.", ge=1, le=10_000_000)]
RecordsPerInput = Annotated[int, setting("Number of records per input dimension.", ge=2, le=1000)]
