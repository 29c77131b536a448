"""Records of kind `simulation`: moments of simulated sums by law, nu = m zeta^2 / sigma^2 and y.

x: y / nu. simulated: E exp(x ||G - mu||^2), with its standard error; lemma_10, tight: two bounds.
"""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.fields import Model, Once, setting
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas_workflow.papers.max_information.records import Numbers

Law = Literal["signs", "rare-signs", "sphere", "axes"]


class Simulation(Model):
    """Monte Carlo check of the moment bound behind kappa, on sums of bounded vectors."""

    m: int = setting("Vectors in a sum.", ge=1, le=100_000)
    draws: int = setting("Number of simulated sums.", ge=2, le=100_000_000)
    laws: Once[Law] = setting("Distributions of a vector.", min_length=1)
    nus: Numbers
    ys: Once[Annotated[float, Field(gt=0, lt=0.5)]] = setting(
        "Values of nu x, where x multiplies the squared norm in the exponent.", min_length=1
    )


class KappaSimulationSpec(SpecFields, Simulation):
    """Settings of the job."""

    kind: Literal["simulation"]
    seed: int


RECORD = RecordShape(
    KappaSimulationSpec,
    version=2,
    facts="",
    tables={"rows": "law nu x y simulated standard_error lemma_10 tight"},
)
