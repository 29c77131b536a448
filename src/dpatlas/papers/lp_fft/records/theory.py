"""What specs and records of lp_fft's theory have in common: numbers, nets and layers."""

from typing import Annotated, Literal

from pydantic import Field

Count = Annotated[int, Field(ge=1)]
# Of paths, seeds and records, of which a mean has a standard error.
Several = Annotated[int, Field(ge=2)]
Positive = Annotated[float, Field(gt=0)]
# In degrees; two directions within it of one axis are at an acute angle.
Angle = Annotated[float, Field(gt=0, lt=45)]
# Noise of linear nets: equal in all layers, or larger in the head by the square root of d.
LayerNoise = Literal["uniform", "layer-wise"]
NOISES: tuple[LayerNoise, ...] = ("uniform", "layer-wise")
