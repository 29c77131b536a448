"""Records of kind `linearized`: the linearised network of Sec. 6 at a fixed KL budget."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.records import OverRuns, OverRunsLast, RunsFields
from dpatlas.papers.kl_privacy.records import Count, Depth, Init, KlSpec, Position, Positive


class Spec(KlSpec, RunsFields):
    """One initialisation over several depths, trained on `n_train` of a run's records.

    width: hidden units m; one output. epsilon: KL budget of Cor. 6.4 in nats. min_steps: fewest
    Langevin steps. time, sigma: of the training whose noise is the same at all depths. widths: of
    the networks at depth `width_depth` of which R alone is measured. watched: a record that takes
    part in every run.
    """

    kind: Literal["linearized"]
    init: Init
    depths: list[Depth]
    width: Count
    n_train: Annotated[int, Field(ge=2)]
    epsilon: Positive
    min_steps: Count
    time: Positive
    sigma: Positive
    widths: list[Count]
    width_depth: Depth
    watched: Position


class Distances(records.Typed):
    """By run: R = ||W - W_0||^2 of Lemma 6.3's near-optimal W, and B R / n, n = `records`."""

    records: int
    R_runs: OverRuns[float]
    BR_over_n_runs: OverRuns[float]


class AtWidth(records.Typed):
    """One width. data: on training records of the run; sphere: on inputs of norm sqrt(d)."""

    width: int
    B: float
    data: Distances
    sphere: Distances


class AtDepth(records.Typed):
    """One depth; names ending in `_runs` are lists over runs.

    B: of Eq. 7; B_runs: mean squared gradient norm over records at the start. data, sphere: as in
    `AtWidth`. T_runs: training time of Cor. 6.4 for the run's R. shares: of that time, at which
    KL in nats is kept, (shares, runs), under the exact convention: kl_max_runs of the record for
    which it is largest, kl_watched_runs of the watched one. excess_risk_runs: of the averaged
    iterate; initial_risk_runs: at W_0 (logistic loss). kl_fixed_runs: largest KL of any record
    after the spec's `time` with its `sigma`.
    """

    depth: int
    B: float
    B_runs: OverRuns[float]
    data: Distances
    sphere: Distances
    T_runs: OverRuns[float]
    shares: list[float]
    kl_max_runs: OverRunsLast[float]
    kl_watched_runs: OverRunsLast[float]
    excess_risk_runs: OverRuns[float]
    initial_risk_runs: OverRuns[float]
    kl_fixed_runs: OverRuns[float]


class Metrics(records.Metrics):
    """Every depth and width of the spec. n_train, n_add: records removed and added."""

    VERSION: ClassVar[int] = 2

    n_train: int
    n_add: int
    depths: list[AtDepth]
    widths: list[AtWidth]
