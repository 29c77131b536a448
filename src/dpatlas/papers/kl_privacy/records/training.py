"""Records of kind `training`: runs of one condition, with the KL of every record on the way."""

from typing import Literal

from dpatlas.core import records
from dpatlas.papers.kl_privacy.records import Count, Depth, Init, KlSpec, Positive


class Spec(KlSpec):
    """One condition: network, step size eta = `lr`, noise `sigma`, full-batch steps, runs.

    depth: weight matrices L. width: hidden units m. outputs: o; 1 is the logistic loss, 2 or more
    the softmax. The update is W - eta grad + sqrt(2 eta sigma^2) Z.
    """

    kind: Literal["training"]
    init: Init
    depth: Depth
    width: Count
    outputs: Count
    lr: Positive
    sigma: Positive
    steps: Count
    runs: Count


class WorstCase(records.Typed):
    """Cumulative KL in nats; lists run over steps 1..K, inner lists over the runs used.

    worst: largest over records of the mean over runs; low, high: its bootstrap interval over runs,
    `interval` says which. worst_record: index of that record (training records first, then those
    to add); worst_runs: every run's value at it. run_max: every run's largest over records. mean:
    over records and runs.
    """

    worst: list[float]
    low: list[float]
    high: list[float]
    interval: str
    worst_record: list[int]
    worst_runs: list[list[float]]
    run_max: list[list[float]]
    mean: list[float]


class Loss(records.Typed):
    """runs: mean training loss at the weights that a step starts from, (steps, runs used)."""

    runs: list[list[float]]


class Probe(records.Typed):
    """How far gradients and weights moved from the start, (runs used, probed steps).

    steps: the probed ones, 1, 2, 4, ... gradient_change: the largest norm of the change of a
    record's gradient. distance: norm of the change of the weights.
    """

    steps: list[int]
    gradient_change: list[list[float]]
    distance: list[list[float]]


class Metrics(records.Metrics):
    """What the runs of one condition gave.

    n_train, n_add: records removed and added as neighbours. inputs: d. parameters: weights of the
    network. convention: of the KL values, as in `formulas.theorems.kl_step`. diverged: for every
    run the first step with a KL that is not finite, else None; the others are the `runs_used`, and
    without any all that follows is None. gradient_gap_at_start: largest over records of the
    squared norm of the change of the mean gradient, mean over runs. gradient_norm2_at_start:
    squared norm of the mean gradient, mean over runs.
    """

    n_train: int
    n_add: int
    inputs: int
    parameters: int
    convention: Literal["exact"]
    diverged: list[int | None]
    runs_used: int
    kl: WorstCase | None
    loss: Loss | None
    gradient_gap_at_start: float | None
    gradient_norm2_at_start: float | None
    probe: Probe | None
