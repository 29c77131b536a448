"""kl_privacy: the tables that claims.yaml reads beside those of the paper's records.

KL of a condition at a step: per run, the largest cumulative KL of any record, as a natural
logarithm; bounds, which are for expectations, are compared with means. Runs of one number share
their records and initial weights, so differences between conditions are taken run by run. A
diverged run leaves the entry undecided: divergence depends on what is measured, so the remaining
runs are a biased sample.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpatlas_workflow.evidence.comparisons import NotRun, Undecided
from dpatlas_workflow.papers.kl_privacy.readings import bounded, constants_by_run
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns

Records = Sequence[Record[Any]]
LEAST_STEPS_FOR_DRIFT = 3
# Of the constant B with depth (Table 1): it falls for two inits and rises for the others.
FALLS = ("lecun", "xavier")


def least_changes(records: Records) -> pd.DataFrame:
    """By record the least `change` of log KL of any run from one shown step to the next."""
    rows = []
    for record in records:
        curves = columns([record], "curves")
        kl = _all_runs(curves).pivot(index="step", columns="run", values="kl_max").to_numpy()
        steps, runs = kl.shape
        if steps < 2:
            raise NotRun(f"{record.spec.init} has a single step")
        if not (kl > 0).all():
            raise Undecided(f"KL of {record.id} is zero or not finite in some run", runs)
        change = np.diff(np.log(kl), axis=0).min()
        rows.append({"init": record.spec.init, "change": change, "of_runs": runs})
    return pd.DataFrame(rows)


def over_lemma(records: Records) -> pd.DataFrame:
    """`curves` with KL over Lemma 3.2, exact convention: `largest` and `watched`.

    Each run has a bound of its own: the lemma given its initial weights, with the largest c and
    beta that its trajectory shows. Without the steps at which the bound of some run overflows.
    """
    parts = []
    for record in records:
        curves, spec = _all_runs(columns([record], "curves")), record.spec
        if spec.steps < LEAST_STEPS_FOR_DRIFT:
            raise NotRun(f"{spec.init} has {spec.steps} steps; Lemma 3.2's constants need 3")
        largest = constants_by_run(record)
        gaps = columns([record], "runs").gap_watched.to_numpy(float)
        watched = dataclasses.replace(largest, gdiff0=gaps)
        for step, runs in curves.groupby("step"):
            bounds = [each.kl_bound(spec.lr * step, "exact") for each in (largest, watched)]
            if np.isfinite(bounds).all():
                ratios = {
                    "largest": runs.kl_max / bounds[0],
                    "watched": runs.kl_watched / bounds[1],
                }
                parts.append(runs.assign(**ratios))
    return pd.concat(parts) if parts else pd.DataFrame()


def over_corollary(records: Records) -> pd.DataFrame:
    """`shares` with KL of the linearised network over Cor. 4.2, exact: `largest` and `watched`."""
    shares = columns(records, "shares")
    # A run's noise is such that the bound is the budget at the end of its time.
    bound = shares.share * shares.epsilon
    return shares.assign(largest=shares.kl_max / bound, watched=shares.kl_watched / bound)


def over_risk_bounds(records: Records) -> pd.DataFrame:
    """`readings.bounded` with each run's excess risk over its bounds."""
    data = bounded(records)
    return data.assign(
        over_lemma=data.excess_risk / data.lemma_printed,
        over_corollary=data.excess_risk / data.corollary,
    )


def monte_carlo(records: Records) -> pd.DataFrame:
    """The rows of Eq. 33's check with the mean, and its error, over B."""
    rows = columns(records)
    return rows.assign(ratio=rows["mean"] / rows.B, error=rows.standard_error / rows.B)


def constant_changes(records: Records) -> pd.DataFrame:
    """The `change` of log B of Eq. 7 from each `depth` to the `next`, with its claimed side."""
    rows = []
    for record in records:
        init, B = record.spec.init, columns([record], "depths").groupby("depth").B.first()
        limits = (
            {"below": 0.0, "above": -math.inf}
            if init in FALLS
            else {"above": 0.0, "below": math.inf}
        )
        rows += [
            {"init": init, "depth": d, "next": e, "change": math.log(B[e] / B[d]), **limits}
            for d, e in itertools.pairwise(B.index)
        ]
    if not rows:
        raise NotRun("a single depth")
    return pd.DataFrame(rows)


def _all_runs(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves of one record; Undecided where runs diverged."""
    runs = curves.groupby("run").kl_max.count()
    if lost := int((runs == 0).sum()):
        reason = f"{lost} of {len(runs)} runs of {curves.record.iloc[0]} diverged"
        raise Undecided(reason, len(runs) - lost)
    return curves


TABLES: dict[str, Callable[[Records], pd.DataFrame]] = {
    table.__name__: table
    for table in (
        least_changes,
        over_lemma,
        over_corollary,
        over_risk_bounds,
        monte_carlo,
        constant_changes,
    )
}
