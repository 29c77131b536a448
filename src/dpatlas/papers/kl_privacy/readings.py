"""What figures and claims read of records: KL by run at a step, by record, and bounds on risk."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.formulas.theorems import (
    excess_risk_averaged_iterate,
    excess_risk_term,
    kl_linearized,
)
from dpatlas.papers.kl_privacy.kinds import LinearizedRecord, TrainingRecord
from dpatlas.papers.kl_privacy.records.linearized import AtDepth

RiskBound = Literal["lemma_printed", "corollary"]


def used(values: Sequence[float | None]) -> np.ndarray:
    """The values of runs that did not diverge, shape (runs used,)."""
    return np.array([value for value in values if value is not None], float)


def at_step(record: TrainingRecord, name: str, step: int) -> np.ndarray:
    """The curve `name` (kl_max, kl_watched, loss) after `step` steps, shape (runs used,).

    Raises InputError for a step that the record does not show.
    """
    shown = record.spec.shown_steps
    if step not in shown:
        raise InputError(record.id, f"no step {step}", f"one of the shown steps up to {shown[-1]}")
    return used(getattr(record.metrics.curves, name)[shown.index(step)])


def growth_exponents(record: TrainingRecord, start: int, end: int) -> np.ndarray:
    """log(KL(end) / KL(start)) / log(end / start) of each run's largest KL, shape (runs used,)."""
    growth = at_step(record, "kl_max", end) / at_step(record, "kl_max", start)
    return np.log(growth) / np.log(end / start)


def largest_mean(record: TrainingRecord, step: int) -> float | None:
    """Largest over records of the mean over runs of KL after `step` steps.

    With dealt records a record is removed in some runs and added in others. None at other steps
    than the spec's record steps, without a run that did not diverge, and for a part of the runs.
    """
    by_record, steps = record.metrics.by_record, record.spec.record_steps
    if step not in steps or by_record.sums is None or not by_record.runs:
        return None
    return max(by_record.sums[steps.index(step)]) / by_record.runs


def risk_bound(record: LinearizedRecord, at: AtDepth, run: int, bound: RiskBound) -> float:
    """Bound on one run's excess risk, with its measured R and the exact convention's noise.

    `lemma_printed`: Lemma 6.1 as printed, with alpha = log(1 + n^-2) of Lemma 6.3's solution and
    rank n. `corollary`: 1 / n^2 and the term of Eq. 73.
    """
    n, epsilon = record.metrics.n_train, record.spec.epsilon
    distance, time = at.data.R_runs[run], at.T_runs[run]
    if bound == "corollary":
        return float(1 / n**2 + excess_risk_term(at.B, distance, n, epsilon))
    sigma2 = kl_linearized(at.B, time, n, 1.0) / epsilon
    alpha = np.log1p(1 / n**2)
    return float(excess_risk_averaged_iterate(alpha, distance, time, sigma2, n, "paper"))
