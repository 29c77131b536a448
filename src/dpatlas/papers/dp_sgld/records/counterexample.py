"""dp_sgld, records of kind counterexample: the exact one-dimensional law against the claims."""

from typing import Annotated

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.records import Number, Typed
from dpatlas.papers.dp_sgld.records import Counts, Delta, Positive, Positives, RunSpec


class Spec(RunSpec):
    """Settings of the scan.

    n: number of records. radius: of the interval that iterates are projected onto. ratios: n / m
    for batches of m. sigma2s: noise variances. steps: numbers of steps K. alphas: Renyi orders.
    etas: step sizes, below 1 / beta = 1. epsilon, delta: what Thm 4.2 promises.
    """

    n: Annotated[int, Field(ge=2)]
    radius: Positive
    epsilon: Positive
    delta: Delta
    ratios: Annotated[list[Annotated[Number, Field(ge=1)]], Field(min_length=1)]
    sigma2s: Positives
    steps: Counts
    alphas: Annotated[list[Annotated[Number, Field(gt=1)]], Field(min_length=1)]
    etas: Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=1)]


class Law(Typed):
    """A pair of data sets, one with record 1 and one with `x_prime`, all others `rest`.

    eta: step size. m: number of records of a batch.
    """

    x_prime: float
    rest: float
    eta: float
    m: int


class Divergence(Law):
    """Renyi divergence at noise `sigma2`, exact and as Thm 3.2 claims it, (steps, alphas)."""

    sigma2: float
    exact: list[list[float]]
    claimed: list[list[float]]


class PromisedDelta(Law):
    """Exact delta at the spec's epsilon after K steps with the noise of Thm 4.2."""

    K: int
    delta: float


class Metrics(records.Metrics):
    """The scanned laws, and those with the noise of Thm 4.2.

    lipschitz: Lipschitz constant L of a record's loss. calibrated_sigma2: noise of Thm 4.2.
    """

    n: int
    lipschitz: float
    calibrated_sigma2: float
    scan: list[Divergence]
    calibrated: list[PromisedDelta]
