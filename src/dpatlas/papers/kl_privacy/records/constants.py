"""Records of kind `constants`: the Monte Carlo check of the gradient-norm constant B (Eq. 7)."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.papers.kl_privacy.records import Count, Depth, Init, KlSpec


class Spec(KlSpec):
    """Networks of `width` hidden units, `draws` of them for every init and depth."""

    kind: Literal["constants"]
    inits: list[Init]
    depths: list[Depth]
    width: Count
    outputs: Count
    draws: Annotated[int, Field(ge=2)]


class Condition(records.Typed):
    """B of one init and depth beside the mean of ||grad f||_F^2 over draws of the weights."""

    init: Init
    depth: int
    B: float
    mean: float
    standard_error: float
    draws: int


class Metrics(records.Metrics):
    """Every init and depth of the spec, at one record. inputs: d; width: m; outputs: o."""

    inputs: int
    width: int
    outputs: int
    rows: list[Condition]
