"""Records of kind `counterexample`: the exact one-dimensional law against the claims.

Rows are of a pair of data sets, one with record 1 and one with `x_prime`, all others `rest`, at
step size eta and batches of m records. lipschitz: Lipschitz constant L of a record's loss.

`scan`: Renyi divergence of order alpha after K steps at noise sigma2, exact and as Thm 3.2 claims
it. `calibrated`: exact delta at the spec's epsilon after K steps with the noise of Thm 4.2,
calibrated_sigma2.
"""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.fields import (
    AsItIs,
    AsWritten,
    CountList,
    Delta,
    Epsilon,
    Model,
    Once,
    PositiveList,
    setting,
)
from dpatlas.base.records import RecordShape
from dpatlas_workflow.papers.dp_sgld.records import SgldSpec


class Counterexample(Model):
    """The exact one-dimensional law against the claim."""

    n: int = setting("Number of records.", ge=2, le=100_000)
    radius: float = setting("Radius of the interval that iterates are projected onto.", gt=0)
    epsilon: Epsilon
    ratios: Once[Annotated[float, Field(ge=1), AsWritten, AsItIs]] = setting(
        "n / m, records over batch.", min_length=1
    )
    sigma2s: PositiveList
    steps: CountList
    alphas: Once[Annotated[float, Field(gt=1), AsWritten, AsItIs]] = setting(
        "Renyi orders.", min_length=1
    )
    etas: Once[Annotated[float, Field(gt=0, lt=1)]] = setting(
        "Step sizes; beta is 1 and the theorem needs less than 1 / beta.", min_length=1
    )


class CounterexampleSpec(SgldSpec, Counterexample):
    """The scan; epsilon, delta: what Thm 4.2 promises."""

    kind: Literal["counterexample"]
    delta: Delta


RECORD = RecordShape(
    CounterexampleSpec,
    version=2,
    facts="n lipschitz calibrated_sigma2",
    tables={
        "scan": "x_prime rest eta m sigma2 K alpha exact claimed",
        "calibrated": "x_prime rest eta m K delta",
    },
)
