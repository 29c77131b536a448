"""Types that the specs and records of lp_fft's simulated theory share."""

from typing import Annotated, Literal

from pydantic import Field

Count = Annotated[int, Field(ge=1)]
# Sample sizes for which a mean has a standard error.
Several = Annotated[int, Field(ge=2)]
Positive = Annotated[float, Field(gt=0)]
# Degrees from an axis; two directions within this angle of one axis are at an acute angle.
Angle = Annotated[float, Field(gt=0, lt=45)]
# Noise of linear networks: equal in both layers, or sqrt(d) times larger in the head.
LayerNoise = Literal["uniform", "layer-wise"]
NOISES: tuple[LayerNoise, ...] = ("uniform", "layer-wise")
