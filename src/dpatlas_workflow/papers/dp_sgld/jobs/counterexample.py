"""dp_sgld: the exact law in one dimension against Thm 3.2, and against Thm 4.2's calibration."""

from itertools import product
from typing import Any

import numpy as np

from dpatlas.base.progress import Progress
from dpatlas.base.records import Row, rows_of
from dpatlas.formulas.dp_sgld.exact import CURVATURE, exact_delta, exact_renyi, lipschitz_constant
from dpatlas.formulas.dp_sgld.theorems import claimed_rdp, sigma2_approximate
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs import NOTHING_RELEASED, PACKAGES
from dpatlas_workflow.papers.dp_sgld.records.counterexample import RECORD, CounterexampleSpec

# Pairs of data sets: one has a record 1 and the other x_prime in its place, all else is `rest`.
NEIGHBOURS = (
    {"x_prime": 0.0, "rest": 0.0},
    {"x_prime": -1.0, "rest": 0.0},
    {"x_prime": -1.0, "rest": -1.0},
)


def counterexample(job: Job) -> Outcome:
    """Exact and claimed privacy for every pair of data sets, step size and batch size.

    `scan`: Renyi divergence at every noise, step and order. `calibrated`: exact delta(epsilon) with
    the noise for which Thm 4.2 promises delta after any number of steps.
    """
    fields: CounterexampleSpec = job.fields
    n, lipschitz = fields.n, lipschitz_constant(fields.radius)
    promised = sigma2_approximate(fields.epsilon, fields.delta, lipschitz, CURVATURE, n)
    batches = sorted({max(1, round(n / ratio)) for ratio in fields.ratios}, reverse=True)
    laws = [
        {**records, "eta": eta, "m": m}
        for records, eta, m in product(NEIGHBOURS, fields.etas, batches)
    ]
    scan: list[Row] = []
    calibrated: list[Row] = []
    with Progress(len(laws), job.spec.id) as progress:
        for law in laws:
            for sigma2 in fields.sigma2s:
                scan += [
                    {**law, "sigma2": sigma2, **row} for row in divergences(fields, law, sigma2)
                ]
            setting = {"n": n, "radius": fields.radius, "sigma2": float(promised), **law}
            calibrated += [
                {**law, "K": K, "delta": exact_delta(**setting, K=K, eps=fields.epsilon)}
                for K in fields.steps
            ]
            progress.advance()
    facts = {"n": n, "lipschitz": lipschitz, "calibrated_sigma2": float(promised)}
    return Outcome({**facts, "scan": scan, "calibrated": calibrated}, NOTHING_RELEASED)


def divergences(fields: CounterexampleSpec, law: dict[str, Any], sigma2: float) -> list[Row]:
    """Exact and claimed Renyi divergence by step and order."""
    setting = {"n": fields.n, "radius": fields.radius, "sigma2": sigma2, **law}
    orders, lipschitz = np.array(fields.alphas, float), lipschitz_constant(fields.radius)
    return rows_of(
        {"K": fields.steps, "alpha": fields.alphas},
        exact=[
            [exact_renyi(**setting, K=K, alpha=alpha) for alpha in fields.alphas]
            for K in fields.steps
        ],
        claimed=[
            claimed_rdp(orders, lipschitz, CURVATURE, fields.n, sigma2, K * law["eta"]).tolist()
            for K in fields.steps
        ],
    )


KIND = Kind(counterexample, record=RECORD, packages=PACKAGES, reads_images=False)
