"""Records of kind `linearized`: the linearised network of Sec. 6 at a fixed KL budget."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.papers.kl_privacy.records import Count, Depth, Init, KlSpec, Positive


class Spec(KlSpec):
    """One initialisation over several depths, trained on the first `n_train` records.

    width: hidden units m; one output. epsilon: KL budget of Cor. 6.4 in nats. runs:
    initialisations per depth. min_steps: fewest Langevin steps.
    """

    kind: Literal["linearized"]
    init: Init
    depths: list[Depth]
    width: Count
    n_train: Annotated[int, Field(ge=2)]
    epsilon: Positive
    runs: Count
    min_steps: Count


class Sphere(records.Typed):
    """R and B R / n of every run on `records` inputs drawn as the theory assumes, ||x||^2 = d."""

    records: int
    R_runs: list[float]
    BR_over_n_runs: list[float]


class AtDepth(records.Typed):
    """One depth; names ending in `_runs` are lists over runs.

    B: of Eq. 7; B_runs: mean squared gradient norm over records at the start. R_runs:
    ||W - W_0||^2 of Lemma 6.3's near-optimal W; BR_over_n_runs: B R / n. T, sigma2: training time
    and noise variance of Cor. 6.4; eta = T / steps. shown_steps: those of `kl_worst_runs` (shown
    steps, runs), every run's cumulative KL in nats at the record with the largest mean, and of
    `kl_bound`, Cor. 4.2, both under the exact convention. excess_risk_runs: of the averaged
    iterate; initial_risk_runs: at W_0 (logistic loss).
    """

    depth: int
    B: float
    B_runs: list[float]
    R_runs: list[float]
    BR_over_n_runs: list[float]
    sphere: Sphere
    T: float
    sigma2: float
    eta: float
    steps: int
    shown_steps: list[int]
    kl_worst_runs: list[list[float]]
    kl_bound: list[float]
    excess_risk_runs: list[float]
    initial_risk_runs: list[float]


class Metrics(records.Metrics):
    """Every depth of the spec. n_train, n_add: records removed and added; epsilon: KL budget."""

    n_train: int
    n_add: int
    epsilon: float
    depths: list[AtDepth]
