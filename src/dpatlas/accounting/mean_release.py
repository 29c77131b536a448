"""Means of clipped vectors with Gaussian noise, with exact accounting, in numpy without torch.

Replacing one of n records moves the mean by at most 2 C / n; noise of standard deviation
2 C sqrt(releases) / (n mu) makes all releases together mu-GDP (Dong, Roth, Su 2022).
"""

import math

import numpy as np

from dpatlas.accounting.gaussian_dp import gaussian_mu
from dpatlas.base.guard import checked, integer, real


@checked(max_norm=real(gt=0))
def clip_factors(norms: np.ndarray, max_norm: float) -> np.ndarray:
    """min(1, C / norm), elementwise; 0 where a norm is not finite."""
    with np.errstate(invalid="ignore"):
        factors = max_norm / np.maximum(norms, max_norm)
    # C / infinity is 0 by itself, and the maximum of NaN and 0 is 0.
    return np.fmax(factors, 0)


@checked(max_norm=real(gt=0), n=integer(ge=1), mu=real(gt=0), releases=integer(ge=1))
def noise_deviation(max_norm: float, n: int, mu: float, releases: int = 1) -> float:
    """Standard deviation of the noise on each coordinate of `releases` means of n vectors."""
    return 2 * max_norm * math.sqrt(releases) / (n * mu)


@checked(epsilon=real(gt=0), delta=real(gt=0, lt=1), uses=integer(ge=1))
def mu_per_use(epsilon: float, delta: float, uses: int = 1) -> float:
    """mu of each of `uses` mechanisms on one data set that compose to (epsilon, delta).

    The parameters add in quadrature. Mechanisms on disjoint records count as one use.
    """
    return gaussian_mu(epsilon, delta) / math.sqrt(uses)
