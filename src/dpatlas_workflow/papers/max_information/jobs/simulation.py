"""max_information, Lemma 10: moments of simulated sums beside the bounds on them."""

import math
from collections.abc import Callable, Mapping
from itertools import product

import numpy as np

from dpatlas.base.progress import Progress
from dpatlas.base.seeds import generator, seed
from dpatlas.formulas.max_information.kappa import batch_moment_exponent
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.max_information.jobs.theory import LEDGER
from dpatlas_workflow.papers.max_information.records.simulation import (
    RECORD,
    KappaSimulationSpec,
    Law,
)

# Number of sums that are drawn at a time.
BLOCK = 4096


def simulation(job: Job) -> Outcome:
    """E exp(x ||G - mu||^2) on simulated sums, beside Lemma 10's bound and the tight one.

    G is the sum over a batch of m independent vectors of norm at most zeta, divided by sigma, with
    mean mu; nu = m zeta^2 / sigma^2 and x = y / nu. There is a row for every law of the vectors, nu
    and y: the mean over `draws` sums and its standard error. The mean of a heavy-tailed variable
    converges slowly, so a value below a bound supports it only as far as the error is small.
    """
    fields: KappaSimulationSpec = job.fields
    m, draws = fields.m, fields.draws
    cases = list(product(fields.laws, fields.nus))
    rows = []
    with Progress(len(cases), job.spec.id) as progress:
        for law, nu in cases:
            keys = seed(job.spec.key, use="simulation", base=fields.seed, law=law, nu=nu, m=m)
            squares = _squares(LAWS[law], m, draws, generator(keys))
            for y in fields.ys:
                powers = np.exp(y * squares)
                rows.append(
                    {
                        "law": law,
                        "nu": nu,
                        "x": y / nu,
                        "y": y,
                        "simulated": float(powers.mean()),
                        "standard_error": float(powers.std(ddof=1) / math.sqrt(draws)),
                        "lemma_10": math.exp(batch_moment_exponent(y, "lemma-10")),
                        "tight": math.exp(batch_moment_exponent(y, "minimum")),
                    }
                )
            progress.advance(law)
    return Outcome({"rows": rows}, LEDGER)


Sums = Callable[[np.random.Generator, int, int], np.ndarray]


def _squares(law: Sums, m: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Values of ||G - mu||^2 / nu for `draws` sums, (draws,)."""
    sizes = [min(BLOCK, draws - start) for start in range(0, draws, BLOCK)]
    sums = np.concatenate([law(rng, size, m) for size in sizes])
    return np.sum(np.square(sums), axis=1) / m


def _signs(rng: np.random.Generator, draws: int, m: int) -> np.ndarray:
    """Fair signs on a line: the largest variance."""
    return (2.0 * rng.binomial(m, 0.5, draws) - m)[:, None]


def _rare_signs(rng: np.random.Generator, draws: int, m: int) -> np.ndarray:
    """1 with probability 1/10, else -1."""
    return (2.0 * rng.binomial(m, 0.1, draws) - 0.2 * m)[:, None]


def _sphere(rng: np.random.Generator, draws: int, m: int) -> np.ndarray:
    """Uniform directions in three dimensions."""
    vectors = rng.standard_normal((draws, m, 3))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    return vectors.sum(axis=1)


def _axes(rng: np.random.Generator, draws: int, m: int) -> np.ndarray:
    """One of four orthogonal unit vectors, the first more often."""
    chances = np.array([0.7, 0.1, 0.1, 0.1])
    return rng.multinomial(m, chances, draws) - m * chances


# Sums of m vectors of norm at most 1 less their mean, (draws, dimensions).
LAWS: Mapping[Law, Sums] = {
    "signs": _signs,
    "rare-signs": _rare_signs,
    "sphere": _sphere,
    "axes": _axes,
}

KIND = Kind(simulation, record=RECORD, packages=("numpy", "scipy"))
