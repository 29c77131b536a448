"""The cost of feature_learning's jobs: linear in n, and in p apart from second moments."""

from typing import Any

from dpatlas_workflow.cost.counting import KindCost
from dpatlas_workflow.papers.feature_learning.sizes import numbers_of_a_run, runs_at_once


def _units(s: Any) -> float:
    per_feature = 20 * s.steps + 1400
    return s.runs * sum(of.n * of.p * (4 * of.d + 2 * of.p + per_feature) for of in s.points)


def _numbers(s: Any) -> int:
    """The largest block of runs that are simulated together."""
    points = [(of.d, of.n, of.p, s.n_test) for of in s.points]
    return max(min(s.runs, runs_at_once(*sizes)) * numbers_of_a_run(*sizes) for sizes in points)


KINDS = {"simulation": KindCost(_units, ("n", "p", "n_test"), base_mb=300, numbers=_numbers)}
