"""dp_sgld: the exact law in one dimension against Thm 3.2, and against Thm 4.2's calibration."""

from itertools import product

import numpy as np

from dpatlas.core.progress import Progress
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.papers.dp_sgld.formulas.exact import exact_delta, exact_renyi
from dpatlas.papers.dp_sgld.formulas.theorems import claimed_rdp, sigma2_approximate
from dpatlas.papers.dp_sgld.records.counterexample import (
    Divergence,
    Metrics,
    PromisedDelta,
    Spec,
)

LEDGER = {"mechanism": "none: nothing is trained and nothing of any data is released"}
# The loss theta^2 / 2 - x theta is 1-strongly convex and 1-smooth.
CURVATURE = 1.0
# The record 1 of one data set against (this record of the other, all other records of both).
NEIGHBOURS = ((0.0, 0.0), (-1.0, 0.0), (-1.0, -1.0))


def counterexample(job: Job) -> Outcome:
    """`scan`: Renyi divergence for neighbours, eta, batch and sigma2, exact and as claimed.

    `calibrated`: exact delta(epsilon) where Thm 4.2 promises delta for any number of steps.
    """
    fields: Spec = job.fields
    n, lip = fields.n, 1 + fields.radius
    batches = sorted({max(1, round(n / ratio)) for ratio in fields.ratios}, reverse=True)
    promised = float(sigma2_approximate(fields.epsilon, fields.delta, lip, CURVATURE, n))
    scan: list[Divergence] = []
    calibrated: list[PromisedDelta] = []
    laws = list(product(NEIGHBOURS, fields.etas, batches))
    with Progress(len(laws), job.spec.id) as progress:
        for (x_prime, rest), eta, m in laws:
            scan += [divergence(fields, x_prime, rest, eta, m, sigma2) for sigma2 in fields.sigma2s]
            for K in fields.steps:
                law = (n, m, promised, eta, K, fields.radius)
                delta = exact_delta(*law, fields.epsilon, x_prime, rest=rest)
                calibrated.append(
                    PromisedDelta(x_prime=x_prime, rest=rest, eta=eta, m=m, K=K, delta=delta)
                )
            progress.advance()
    metrics = Metrics(
        n=n, lipschitz=lip, calibrated_sigma2=promised, scan=scan, calibrated=calibrated
    )
    return Outcome(metrics, LEDGER)


def divergence(
    fields: Spec, x_prime: float, rest: float, eta: float, m: int, sigma2: float
) -> Divergence:
    """Exact and claimed Renyi divergence of one law, by step and order."""
    n, radius, orders = fields.n, fields.radius, np.array(fields.alphas, float)
    return Divergence(
        x_prime=x_prime,
        rest=rest,
        eta=eta,
        m=m,
        sigma2=sigma2,
        exact=[
            [
                exact_renyi(n, m, sigma2, eta, K, radius, alpha, x_prime, rest=rest)
                for alpha in fields.alphas
            ]
            for K in fields.steps
        ],
        claimed=[
            claimed_rdp(orders, 1 + radius, CURVATURE, n, sigma2, K * eta).tolist()
            for K in fields.steps
        ],
    )


KIND = Kind(
    counterexample,
    spec=Spec,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
