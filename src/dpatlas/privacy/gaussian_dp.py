"""Gaussian differential privacy: conversions between mu and (eps, delta).

A mechanism is mu-GDP if telling its neighbours apart is no easier than N(0, 1) from N(mu, 1)
(Dong, Roth, Su 2022). Scalars; the privacy profile is Balle, Wang 2018, Theorem 8.

Formulas raise `InputError` for what lies outside the declared domains.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from dpatlas.core.formulas import bound
from dpatlas.core.guard import checked, real
from dpatlas.errors import InputError

# Roots are moved to the safe side by this step, which doubles until the inequality holds.
_ROUNDING = 1e-13
LARGEST_MU = 1e4


@bound("gdp-delta", source="dp_sgld Gaussian DP (Balle, Wang 2018, Thm 8)")
@checked(mu=real(ge=0), eps=real(ge=0))
def gaussian_delta(mu: float, eps: float) -> float:
    """delta(eps) of mu-GDP: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""
    if mu == 0:
        return 0.0
    likely = log_ndtr(mu / 2 - eps / mu)
    if likely == -np.inf:
        return 0.0
    unlikely = eps + log_ndtr(-mu / 2 - eps / mu)
    return abs(float(np.exp(likely) * np.expm1(min(unlikely - likely, 0.0))))


@bound("gdp-epsilon", source="dp_sgld Gaussian DP (Balle, Wang 2018, Thm 8)")
@checked(mu=real(ge=0), delta=real(gt=0, lt=1))
def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least eps >= 0 at which mu-GDP gives (eps, delta), rounded up.

    For mu > 1e4, where doubles cannot resolve delta, mu^2 / 2 + mu sqrt(2 log(1/delta)).
    """
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # At this epsilon the first term of delta(eps) is below delta: Phi(-t) <= exp(-t^2 / 2).
    enough = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    if mu > LARGEST_MU:
        return enough
    eps = brentq(lambda eps: gaussian_delta(mu, eps) - delta, 0, enough, xtol=1e-14)
    unit = _ROUNDING * enough
    while gaussian_delta(mu, eps) > delta:
        eps, unit = eps + unit, 2 * unit
    return float(eps)


@bound("gdp-mu", source="dp_sgld Gaussian DP (Balle, Wang 2018, Thm 8)")
@checked(eps=real(ge=0), delta=real(gt=0, lt=1))
def gaussian_mu(eps: float, delta: float) -> float:
    """The largest mu whose delta(eps) is at most `delta`, rounded down.

    Raises InputError where delta is too near 1 for doubles.
    """
    high = 1.0
    while gaussian_delta(high, eps) <= delta:
        high *= 2
        if high > 1e6 * (1 + eps):
            raise InputError("delta", f"{delta!r}", "a number further below 1")
    low = high / 2
    while gaussian_delta(low, eps) > delta:
        low /= 2
    mu = brentq(lambda mu: gaussian_delta(mu, eps) - delta, low, high, xtol=1e-14)
    unit = _ROUNDING
    while gaussian_delta(mu, eps) > delta:
        mu, unit = mu * (1 - unit), 2 * unit
    return float(mu)
