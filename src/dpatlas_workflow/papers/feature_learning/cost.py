"""The cost of feature_learning's jobs: linear in n, and in p apart from second moments."""

from dpatlas_workflow.cost.counting import KindCost
from dpatlas_workflow.papers.feature_learning.sizes import numbers_of_a_run, runs_at_once

KINDS = {
    "simulation": KindCost(
        lambda s, network: (
            s.runs
            * sum(
                each.n * each.p * (4 * each.d + 2 * each.p + 20 * s.steps + 1400)
                for each in s.points
            )
        ),
        lower=("n", "p", "n_test"),
        base_mb=300,
        # The largest block of runs that are simulated together.
        numbers=lambda s: max(
            min(s.runs, runs_at_once(*sizes)) * numbers_of_a_run(*sizes)
            for sizes in ((each.d, each.n, each.p, s.n_test) for each in s.points)
        ),
    )
}
