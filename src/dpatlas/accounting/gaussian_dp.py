"""Gaussian differential privacy: conversions between mu and (eps, delta).

A mechanism is mu-GDP if telling its neighbours apart is no easier than N(0, 1) from N(mu, 1)
(Dong, Roth, Su 2022). Scalars; the privacy profile is Balle, Wang 2018, Theorem 8.

Formulas raise `InputError` for what lies outside the declared domains.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, exprel, ndtr

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, real

Values = TypeVar("Values", float, np.ndarray)
LARGEST_MU = 1e4
# Roots are moved to the safe side by this relative step, which doubles until the inequality holds.
_STEP = 2.0**-52
_SMALLEST = 5e-324
# Gauss-Legendre rule on [0, 1]. Each integrand falls by e^-45 over the interval.
_NODES, _WEIGHTS = np.array(np.polynomial.legendre.leggauss(40)) / 2 + [[0.5], [0.0]]
_DECAY = 45.0


@bound("gdp-delta", source="dp_sgld Gaussian DP (Balle, Wang 2018, Thm 8)")
@checked(mu=real(ge=0), eps=real(ge=0))
def gaussian_delta(mu: float, eps: float) -> float:
    """delta(eps) of mu-GDP: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

    The relative error is below 1e-12 for mu <= 50 and results above 1e-300.
    """
    return math.exp(_log_delta(mu, eps)[0])


def _log_delta(mu: float, eps: float) -> tuple[float, float]:
    """log delta(eps) of mu-GDP, and a bound on its rounding error.

    With x = eps/mu - mu/2, phi the normal density and M(x) = Phi(-x) / phi(x), delta(eps) is
    phi(x) (M(x) - M(x + mu)), where the difference is the integral over s > 0 of
    exp(-x s - s^2 / 2) (1 - exp(-mu s)). The integral, in which nothing cancels, is for mu <= 1,
    and for mu <= x / 8, where mu s stays as small.
    """
    mu, eps = float(mu), float(eps)
    crossing = eps / mu if mu else math.inf
    x = crossing - mu / 2
    if abs(x) > 1e150:
        return (-math.inf if x > 0 else 0.0), 0.0
    if mu <= max(1.0, x / 8):
        length = 2 * _DECAY / (x + math.sqrt(x * x + 2 * _DECAY))
        s = length * _NODES
        terms = _WEIGHTS * s * np.exp(-s * (x + s / 2)) * exprel(-mu * s)
        value = _log_density(x) + math.log(mu) + math.log(length * terms.sum())
    elif x < 0:
        value = math.log1p(-float(ndtr(x)) - math.exp(_log_density(x)) * _mills(x + mu))
    else:
        value = _log_density(x) + math.log(_mills(x) - _mills(x + mu))
    return value, 2.0**-51 * (16 + abs(value) + abs(x) * (1 + abs(x) + crossing + mu))


def log_mixture(log_ratio: Values, q: float) -> Values:
    """Log density of (1 - q) P + q Q relative to P, from that of Q relative to P.

    What a step shows of a record that a Poisson sample has with probability q (Mironov, Talwar,
    Zhang 2019, Sec. 3).
    """
    # One of the two alone: the logarithm of the other's weight is infinite.
    if q in (0, 1):
        return q * log_ratio
    return np.logaddexp(math.log1p(-q), math.log(q) + log_ratio)


def amplified(eps: float | np.ndarray, q: float) -> np.ndarray:
    """log(1 + q (e^eps - 1)) for eps >= 0 and 0 < q <= 1, without cancellation or overflow.

    The epsilon that a sample of rate q has (Balle, Barthe, Gaboardi 2018).
    """
    eps = np.asarray(eps, float)
    with np.errstate(divide="ignore"):
        large = np.logaddexp(np.log1p(-q), np.log(q) + eps)
    return np.where(eps <= 1, np.log1p(q * np.expm1(np.minimum(eps, 1))), large)


def _log_density(x: float) -> float:
    return -x * x / 2 - math.log(2 * math.pi) / 2


def _mills(x: float) -> float:
    """Phi(-x) / phi(x)."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


@bound("gdp-epsilon", source="dp_sgld Gaussian DP (Balle, Wang 2018, Thm 8)")
@checked(mu=real(ge=0), delta=real(gt=0, lt=1))
def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least eps >= 0 at which mu-GDP gives (eps, delta), rounded up.

    The delta of the result is at most `delta`, for mu <= 50 by less than a relative 1e-11.
    For mu > 1e4, where doubles cannot resolve delta, mu^2 / 2 + mu sqrt(2 log(1/delta)).
    """

    def excess(eps: float) -> float:
        return _excess(mu, eps, delta)

    if excess(0.0) <= 0:
        return 0.0
    # At this epsilon the first term of delta(eps) is below delta: Phi(-t) <= exp(-t^2 / 2) / 2.
    enough = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 4 * _STEP)
    if mu > LARGEST_MU:
        return enough
    eps = mu * _root(lambda ratio: excess(mu * ratio), 0, enough / mu)
    unit = max(_STEP * max(mu, eps), _SMALLEST)
    while excess(eps) > 0:
        eps, unit = eps + unit, 2 * unit
    return float(eps)


@bound("gdp-mu", source="dp_sgld Gaussian DP (Balle, Wang 2018, Thm 8)")
@checked(eps=real(ge=0), delta=real(gt=0, lt=1))
def gaussian_mu(eps: float, delta: float) -> float:
    """The largest mu whose delta(eps) is at most `delta`, rounded down.

    The delta of the result is at most `delta`, for mu <= 50 by less than a relative 1e-11.
    """

    def excess(mu: float) -> float:
        return _excess(mu, eps, delta)

    high = 1.0
    while excess(high) <= 0:
        high *= 2
    low = high / 2
    while excess(low) > 0:
        low /= 2
    mu = low * _root(lambda ratio: excess(low * ratio), 1, 2)
    unit = _STEP
    while excess(mu) > 0:
        mu, unit = mu * (1 - unit), 2 * unit
    return float(mu)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where `function` crosses 0; brentq underflows where the ends are tiny."""
    return float(brentq(function, low, high, xtol=_STEP, rtol=4 * _STEP))


def _excess(mu: float, eps: float, delta: float) -> float:
    """Not above 0 only where delta(eps) of mu-GDP is at most `delta` whatever was rounded."""
    value, error = _log_delta(mu, eps)
    return value + error - math.log(delta)
