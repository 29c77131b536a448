"""What figures and claims compute of records' rows: means by record, growth, and bounds."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpatlas.errors import InputError
from dpatlas.formulas.kl_privacy.theorems import (
    excess_risk_averaged_iterate,
    excess_risk_term,
    kl_drift_integral,
    kl_linearized,
    kl_step,
)
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns


def largest_means(records: Iterable[Record[Any]]) -> pd.DataFrame:
    """`curves` with kl_worst: the largest over records of the mean over runs of their KL.

    At the specs' record steps alone. With dealt records a record is removed in some runs and added
    in others.
    """
    records = list(records)
    sums = columns(records, "by_record")
    worst = [
        (*at, np.sum(list(blocks.sums), axis=0).max() / blocks.runs.sum())
        for at, blocks in sums[sums.runs > 0].groupby(["condition", "step"], sort=False)
    ]
    named = pd.DataFrame(worst, columns=["condition", "step", "kl_worst"])
    curves = columns(records, "curves")
    kept = curves.merge(sums[["condition", "step"]].drop_duplicates())
    kept = kept.merge(named, "left")
    return kept.assign(kl_worst=kept.kl_worst.where(kept.kl_max.notna()))


def growth(records: Iterable[Record[Any]], start: int, end: int) -> pd.DataFrame:
    """`curves` at step `end`, with growth: log(KL(end) / KL(start)) / log(end / start) by run."""
    records, run = list(records), ["condition", "run"]
    before = columns(records, "curves", step=start)[[*run, "kl_max"]]
    data = columns(records, "curves", step=end).merge(before, on=run, suffixes=("", "_start"))
    exponent = np.log(data.kl_max / data.kl_max_start) / np.log(end / start)
    return data.assign(growth=exponent)


def bounded(records: Iterable[Record[Any]]) -> pd.DataFrame:
    """`depths` with bounds on each run's excess risk, and KL at the end of its training time.

    By the run's measured R and the exact convention's noise. `corollary`: 1 / n^2 and the term of
    Eq. 73. `lemma_printed`: Lemma 6.1 as printed, with alpha = log(1 + n^-2) of Lemma 6.3's
    solution and rank n.
    """
    records = list(records)
    at_the_end = columns(records, "shares", share=1.0)[["condition", "run", "depth", "kl_max"]]
    data = columns(records, "depths").merge(at_the_end)
    n = data.n_train
    sigma2 = kl_linearized(data.B, data["T"], n, 1.0) / data.epsilon
    return data.assign(
        corollary=1 / n**2 + excess_risk_term(data.B, data.R, n, data.epsilon),
        lemma_printed=excess_risk_averaged_iterate(
            np.log1p(1 / n**2), data.R, data["T"], sigma2, n, "paper"
        ),
    )


@dataclass(frozen=True)
class DriftConstants:
    """Arguments of `kl_drift_integral`, all but T and the convention.

    beta, c, gdiff0 and g0 may be arrays over runs.
    """

    beta: float | np.ndarray
    c: float | np.ndarray
    n: int
    gdiff0: float | np.ndarray
    g0: float | np.ndarray
    sigma2: float
    rank: int

    def kl_bound(self, time, convention: str):
        """Lemma 3.2's bound on the KL after `time` = step size times steps, in nats.

        Elementwise in `time` and the arrays; inf where the lemma's exponential overflows.
        """
        integral = kl_drift_integral(time, **asdict(self), convention=convention)
        # The integral takes the place of eta gap in eta gap / (4 sigma2). It may have overflowed to
        # inf, which `kl_step` would refuse as a gap.
        return integral * kl_step(1.0, self.sigma2, 1.0, convention)


def constants_by_run(record: Record[Any]) -> DriftConstants:
    """Estimates of the constants of Lemma 3.2 from each trajectory of a `training` record.

    The lemma asks for ||g(W) - g(W')|| < max(c, beta ||W - W'||) for every record's gradient g and
    all weights. Here c is the largest change of a gradient at the first probed step (the jumps of
    the ReLU, which do not shrink with the distance), beta the largest ratio of change to distance
    at the later probed steps, both over the probed records of a run. What is observed along a
    trajectory is at most the global constant, so this bound is at most the lemma's: a KL value
    below it is below the lemma's too. gdiff0 is the run's largest initial gap: the lemma's proof
    holds for every trajectory, so with it the lemma bounds the run's largest KL. n is that of a
    removed record, n - 1, the larger of the two gaps.

    Raises InputError for a record whose runs all diverged, and one with fewer than two probed
    steps.
    """
    runs = columns([record], "runs").query("diverged.isna()")
    if runs.empty:
        raise InputError(record.id, "no run that did not diverge", "at least one run")
    probe = columns([record], "probe").pivot(index="step", columns="run")
    if len(probe) < 2:
        steps = f"{record.spec.steps} steps"
        raise InputError(record.id, steps, "at least 3 steps (two are probed)")
    change, distance = probe.gradient_change.to_numpy(), probe.distance.to_numpy()
    return DriftConstants(
        beta=(change[1:] / distance[1:]).max(0),
        c=change[0],
        n=record.facts["n_train"] - 1,
        gdiff0=runs.gap_max.to_numpy(float),
        g0=runs.norm2.to_numpy(float),
        sigma2=record.spec.sigma**2,
        rank=record.facts["parameters"],
    )


def drift_constants(record: Record[Any]) -> DriftConstants:
    """The constants of all runs of a `training` record: largest c and beta, mean gdiff0 and g0.

    Raises InputError as `constants_by_run`.
    """
    of_runs = constants_by_run(record)
    return replace(
        of_runs,
        beta=float(np.max(of_runs.beta)),
        c=float(np.max(of_runs.c)),
        gdiff0=float(np.mean(of_runs.gdiff0)),
        g0=float(np.mean(of_runs.g0)),
    )
