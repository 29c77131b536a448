"""max_information without data: Figs. 1 and 2, and the lemma behind kappa on simulated sums."""

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

from dpatlas.core.guard import integer, one_of, real
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import generator, seed
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job
from dpatlas.papers.max_information.formulas.kappa import (
    FORMS,
    batch_moment_exponent,
    check_steps,
    kappa_per_record,
)
from dpatlas.papers.max_information.formulas.mechanisms import (
    gaussian_leading_coefficient,
    gaussian_root_coefficient,
    pure_dp_leading_coefficient,
    pure_dp_root_coefficient,
)

LEDGER = {"mechanism": "none: nothing is trained and nothing of any data is released"}
AXES = ("n", "zeta_over_sigma", "E", "T", "delta")
# Sums are drawn this many at a time.
BLOCK = 4096


def coefficients(job: Job) -> dict[str, Any]:
    """Fig. 1: the two coefficients of Prop. 1 beside those of pure privacy at delta = beta.

    `curves`: for every alpha, values over all of `betas`. Raises InputError for an alpha too large
    for a beta.
    """
    fields = job.spec.fields
    betas = np.array(fields["betas"], float)
    curves = [
        {
            "alpha": alpha,
            "beta": betas.tolist(),
            "gaussian_leading": gaussian_leading_coefficient(alpha, betas).tolist(),
            "gaussian_root": gaussian_root_coefficient(alpha, betas).tolist(),
            "pure_dp_leading": pure_dp_leading_coefficient(betas).tolist(),
            "pure_dp_root": pure_dp_root_coefficient(betas, betas).tolist(),
        }
        for alpha in fields["alphas"]
    ]
    metrics = {"alphas": list(fields["alphas"]), "curves": curves}
    return {"metrics": metrics, "ledger": LEDGER}


def kappa(job: Job) -> dict[str, Any]:
    """Fig. 2: kappa / n by form, and log(4 sqrt(n) / delta) / n, along one axis at a time.

    `base`: n, m, zeta, sigma, E, delta; axes: their values. beta = delta / 2 as in Theorem 2; an
    epoch has T = floor(n / m) steps, on the axis of T m = floor(n / T) records in each. None is
    beyond all numbers. Raises InputError for an unknown axis and for m > n.
    """
    fields = job.spec.fields
    base = fields["base"]
    panels = []
    for axis, values in fields["axes"].items():
        one_of(*AXES).check("axes", axis)
        panels.append({"axis": axis, "x": list(values), **_panel(base, axis, values)})
    metrics = {"base": base, "panels": panels}
    return {"metrics": metrics, "ledger": LEDGER}


def _panel(base: Mapping[str, Any], axis: str, values: list[float]) -> dict[str, list[Any]]:
    settings = [_setting(base, axis, value) for value in values]
    found: dict[str, list[Any]] = {form: [] for form in FORMS}
    for n, setting in settings:
        for form in FORMS:
            value = float(kappa_per_record(n, *setting, form=form))
            found[form].append(value if math.isfinite(value) else None)
    deltas = [2 * setting[-1] for _, setting in settings]
    found["confidence"] = [
        math.log(4 * math.sqrt(n) / delta) / n
        for (n, _), delta in zip(settings, deltas, strict=True)
    ]
    return found


def _setting(base: Mapping[str, Any], axis: str, value: float) -> tuple[int, tuple[Any, ...]]:
    """n, and (m, zeta, sigma, T, E, beta), with `value` on the axis."""
    given = {**base, axis: value}
    n, m = given["n"], given["m"]
    integer(ge=1).check("n", n)
    if axis == "T":
        check_steps(value, 1, n)
        m = n // value
    if m > n:
        raise InputError("m", m, f"at most n = {n}")
    zeta = value * given["sigma"] if axis == "zeta_over_sigma" else given["zeta"]
    T = value if axis == "T" else n // m
    real(gt=0, lt=1).check("delta", given["delta"])
    return n, (m, zeta, given["sigma"], T, given["E"], given["delta"] / 2)


def simulation(job: Job) -> dict[str, Any]:
    """E exp(x ||G - mu||^2) on simulated sums, beside Lemma 10's bound and the tight one.

    G is the sum over a batch of m independent vectors of norm at most zeta, over sigma; nu =
    m zeta^2 / sigma^2 is given, and x = y / nu. A row for every law of the vectors, nu and y: the
    mean over `draws` sums and its standard error. The mean of a heavy tail converges slowly: a
    value below a bound is evidence as far as its error goes.
    """
    fields = job.spec.fields
    m, draws = fields["m"], fields["draws"]
    integer(ge=1).check("m", m)
    integer(ge=2).check("draws", draws)
    cases = list(product(fields["laws"], fields["nus"]))
    rows = []
    with Progress(len(cases), job.spec.id) as progress:
        for law, nu in cases:
            one_of(*LAWS).check("laws", law)
            real(gt=0).check("nus", nu)
            keys = seed(job.spec.key, use="simulation", base=fields["seed"], law=law, nu=nu, m=m)
            squares = _squares(LAWS[law], m, draws, generator(keys))
            for y in fields["ys"]:
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
    metrics = {"m": m, "draws": draws, "rows": rows}
    return {"metrics": metrics, "ledger": LEDGER}


Law = Callable[[np.random.Generator, int, int], np.ndarray]


def _squares(law: Law, m: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """||G - mu||^2 / nu of `draws` sums, (draws,)."""
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
LAWS: Mapping[str, Law] = {
    "signs": _signs,
    "rare-signs": _rare_signs,
    "sphere": _sphere,
    "axes": _axes,
}
