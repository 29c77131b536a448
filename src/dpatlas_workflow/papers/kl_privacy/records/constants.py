"""Records of kind `constants`: the Monte Carlo check of the gradient-norm constant B (Eq. 7).

Rows, by init and depth: B beside the mean of ||grad f||_F^2 over `draws` draws of the weights, with
its standard error, at one record of `inputs` numbers.
"""

from typing import Literal

from dpatlas.base.fields import Model, setting
from dpatlas.base.records import RecordShape
from dpatlas_workflow.papers.kl_privacy.records import Depths, Init, KlSpec, Width


class Constants(Model):
    """Monte Carlo check of the gradient-norm constant B."""

    depths: Depths
    width: Width
    outputs: int = setting("Outputs o.", ge=1, le=1000)
    draws: int = setting("Networks drawn per init and depth.", ge=2, le=1_000_000)


class ConstantsSpec(KlSpec, Constants):
    """The networks of every init and depth."""

    kind: Literal["constants"]
    inits: list[Init]


RECORD = RecordShape(
    ConstantsSpec,
    version=2,
    facts="inputs",
    tables={"rows": "init depth B mean standard_error draws"},
)
