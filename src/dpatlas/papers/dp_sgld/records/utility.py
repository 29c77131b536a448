"""dp_sgld, records of kind utility: measured excess risk beside the utility bounds."""

from typing import Annotated

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.records import OverRuns, RunsFields, Typed
from dpatlas.papers.dp_sgld.records import Count, Delta, Positive, Positives, RunSpec, Schedule


class Spec(RunSpec, RunsFields):
    """Settings of Langevin SGD on generated records; the noise is Thm 4.2's.

    n: number of records. inputs: dimension of a record. lam: weight of the regulariser.
    """

    n: Annotated[int, Field(ge=2)]
    inputs: Count
    batch: Count
    lam: Positive = Field(alias="lambda")
    epsilons: Positives
    delta: Delta
    steps: Count
    schedules: Annotated[list[Schedule], Field(min_length=1)]


class Lemma(Typed):
    """A lemma's bound at every shown step, shape (shown_steps,): corrected and as printed."""

    name: str
    exact: list[float]
    paper: list[float]


class Theorem(Typed):
    """A theorem's bound after its own number of steps K: corrected and as printed."""

    name: str
    K: int
    exact: float
    paper: float


class Row(Typed):
    """One schedule at one epsilon.

    sigma2: noise variance. distance2: bound on E ||theta_0 - theta*||^2. excess_risk_runs: measured
    at every shown step, shape (runs, shown_steps).
    """

    schedule: Schedule
    epsilon: float
    sigma2: float
    distance2: float
    shown_steps: list[int]
    lemma: Lemma
    theorems: list[Theorem]
    excess_risk_runs: OverRuns[list[float]]


class Metrics(records.Metrics):
    """The problem and its rows.

    parameters: their number d. lipschitz, beta: Lipschitz constant and smoothness of a record's
    loss. radius: of the ball that iterates are projected onto. minimiser_norm: ||theta*||.
    excess_risk_at_zero: of zero weights. batch_noise: xi2 = E ||grad L_B(theta*)||^2.
    """

    classes: int
    parameters: int
    lipschitz: float
    beta: float
    radius: float
    minimiser_norm: float
    gradient_norm_at_minimiser: float
    excess_risk_at_zero: float
    batch_noise: float
    rows: list[Row]
