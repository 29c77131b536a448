"""Records of kind `training`: runs of one condition, with the KL of every record on the way."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from dpatlas.core import records
from dpatlas.core.records import OverRuns, OverRunsLast, RunsFields
from dpatlas.papers.kl_privacy.records import Count, Depth, Init, KlSpec, Position, Positive


class Spec(KlSpec, RunsFields):
    """One condition: network, step size eta = `lr`, noise `sigma`, full-batch steps, runs.

    depth: weight matrices L. width: hidden units m. outputs: o; 1 is the logistic loss, 2 or more
    the softmax. The update is W - eta grad + sqrt(2 eta sigma^2) Z. networks: trained by every run
    on its records, each with weights and noise of its own; a run is their mean. shown_steps: steps
    at which curves are kept; record_steps: those at which every record's KL is. watched: the record
    whose KL is kept for itself.
    """

    kind: Literal["training"]
    init: Init
    depth: Depth
    width: Count
    outputs: Count
    lr: Positive
    sigma: Positive
    steps: Count
    networks: Count
    shown_steps: list[Count]
    record_steps: list[Count]
    watched: Position


class Curves(records.Typed):
    """By shown step and run; None for runs that diverged.

    kl_max: cumulative KL in nats of the record for which it is largest, geometric mean over the
    run's networks. kl_watched: of the watched record, mean over networks. loss: mean training loss
    at the weights that the step starts from.
    """

    kl_max: OverRunsLast[float | None]
    kl_watched: OverRunsLast[float | None]
    loss: OverRunsLast[float | None]


class Start(records.Typed):
    """By run, before the first step; None for runs that diverged.

    gap_max: largest over records of the squared norm of the change of the mean gradient;
    gap_watched: that of the watched record; norm2: squared norm of the mean gradient.
    """

    gap_max: OverRuns[float | None]
    gap_watched: OverRuns[float | None]
    norm2: OverRuns[float | None]


class Probe(records.Typed):
    """How far gradients and weights of a run's first network moved from the start.

    steps: the probed ones, 1, 2, 4, ... By run, then probed step, empty for runs that diverged:
    gradient_change, the largest norm of the change of a record's gradient; distance, the norm of
    the change of the weights.
    """

    steps: list[int]
    gradient_change: OverRuns[list[float]]
    distance: OverRuns[list[float]]


class ByRecord(records.Typed):
    """Cumulative KL in nats of every record, added up over `runs` runs that did not diverge.

    sums: by record step, then record as prepared; None for a part of the runs of a block, which
    the sums do not tell apart.
    """

    runs: int
    sums: list[list[float]] | None

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The sums over all blocks; none if a block has none."""
        sums = [part.sums for part in parts]
        total = None
        if all(each is not None for each in sums):
            total = [
                [sum(values) for values in zip(*rows, strict=True)]
                for rows in zip(*sums, strict=True)
            ]
        return cls(runs=sum(part.runs for part in parts), sums=total)

    def cut(self, runs: int) -> Self:
        """What is known of the first runs: nothing."""
        return self.model_copy(update={"runs": 0, "sums": None})


class Metrics(records.Metrics):
    """What the runs of one condition gave.

    n_train, n_add: records removed and added as neighbours. inputs: d. parameters: weights of the
    network. convention: of the KL values, as in `formulas.theorems.kl_step`. diverged: for every
    run the first step with a KL that is not finite, else None.
    """

    VERSION: ClassVar[int] = 2

    n_train: int
    n_add: int
    inputs: int
    parameters: int
    convention: Literal["exact"]
    diverged: OverRuns[int | None]
    curves: Curves
    start: Start
    probe: Probe
    by_record: ByRecord

    @property
    def runs_used(self) -> int:
        """Number of runs that did not diverge."""
        return self.diverged.count(None)
