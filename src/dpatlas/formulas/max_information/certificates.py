"""Certificates on the risk of a posterior whose prior DP-SGD learned from the same n records.

With probability at least 1 - delta (Eqs. 97 and 98), simultaneously for the priors of K1
hyperparameter tuples and K2 variances and for all posteriors, the risk R of a posterior is at most

    kl^-1(R_hat, (KL + kappa + log(2 K1 K2 sqrt(n) / (delta - delta_mc - beta))) / n),

`kappa` the prior's max-information at level beta / K1 (0 for a prior that ignores the records),
R_hat the risk on the records of the loss, which is in [0, 1]; delta_mc pays for an R_hat that is
itself estimated from `draws` random (record, weights) pairs. Theorem 2 is K1 = K2 = 1, delta_mc = 0
and beta = delta / 2.

Every certificate is rounded up. Formulas work elementwise and raise `InputError` for what lies
outside the declared domains.
"""

from typing import Literal, get_args

import numpy as np
from scipy.special import betainccinv, rel_entr

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError

INTERVALS = ("paper", "chernoff", "clopper-pearson")
CONVENTIONS = ("exact", "paper")
TauReading = Literal["deviation", "variance"]
# How a pair of a record and weights is drawn: the outputs of its layers, or all its weights.
Method = Literal["reparametrisation", "sampling"]
TAU_READINGS: tuple[TauReading, ...] = get_args(TauReading)

_RISK = real(ge=0, le=1)
_COUNT = integer(ge=1)
EXPONENT = {
    "kl": real(ge=0),
    "kappa": real(ge=0, finite=False),
    "n": _COUNT,
    "K1": _COUNT,
    "K2": _COUNT,
    "delta": real(gt=0, lt=1),
    "delta_mc": real(ge=0, lt=1),
    "beta": real(ge=0, lt=1),
}
ESTIMATE = {
    "risk": _RISK,
    "draws": _COUNT,
    "delta_mc": real(gt=0, lt=1),
    "interval": one_of(*INTERVALS),
}

# Several times the rounding error of the few operations between an argument and a result.
_ROUNDING = 2.0**-49
# betainccinv is good to about twelve digits, and to eight and a half far in the tail.
_BETA_ROUNDING = 1e-8
_SMALLEST = 1e-300
# (1 + u) log(1 + u) - u in powers of u, to double precision for |u| < 1/4.
_NEAR_EQUAL = [0.0, 0.0, *((-1.0) ** k / (k * (k - 1)) for k in range(2, 28))]
# Halvings of log(1e300) down to a relative error below rounding.
_HALVINGS = 64


def check_budget(delta, delta_mc, beta):
    """Raise `InputError` unless delta_mc + beta < delta."""
    spent = np.asarray(delta_mc, float) + beta
    # A budget that is positive only by rounding counts as exhausted.
    if np.any(spent >= np.asarray(delta, float) * (1 - 1e-12)):
        allowed = f"a number < delta = {np.min(delta):g}"
        raise InputError("delta_mc + beta", f"{np.max(spent):g}", allowed)


def check_tried(tuples, variances, K1, K2):
    """Raise `InputError` where more priors were tried than the union bound pays for. Scalars."""
    for name, paid, tried in (("K1", K1, tuples), ("K2", K2, variances)):
        if tried > paid:
            raise InputError(name, f"{paid}", f"a whole number >= {tried}, the number tried")


@bound("kl-bernoulli", source="max_information Eq. 5")
@checked(q=_RISK, p=_RISK)
def kl_bernoulli(q, p):
    """kl(q || p) of two coins with success probabilities q and p, nats, to a relative 1e-14."""
    q, p = np.asarray(q, float), np.asarray(p, float)
    return _divergence(q, p, q - p) + _divergence(1 - q, 1 - p, p - q)


def _divergence(q, p, gap):
    """q log(q / p) - q + p >= 0 where gap = q - p; by its power series where q is near p."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = gap / p
    near = np.abs(ratio) < 0.25
    series = np.polynomial.polynomial.polyval(np.where(near, ratio, 0), _NEAR_EQUAL)
    return np.where(near, p * series, rel_entr(q, p) - gap)


@bound("kl-inverse", source="max_information Eq. 35")
@checked(q=_RISK, c=real(ge=0, finite=False))
def kl_inverse(q, c):
    """The largest p with kl(q || p) <= c, rounded up by less than 1e-14 p + 1e-100.

    Computed by geometric bisection for p - q; rounding errors of kl can only enlarge the result. It
    is 1 for infinite c.
    """
    # The inverse rises with q, so that raising a q near 0 is safe and avoids a case of its own.
    q, c = np.maximum(np.asarray(q, float), _SMALLEST), np.asarray(c, float)
    shape = np.broadcast_shapes(q.shape, c.shape)
    low, high = np.full(shape, _SMALLEST), np.broadcast_to(1 - q, shape)
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        beyond = _kl_at_least(q, middle) >= c
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return np.minimum(np.nextafter(q + high * (1 + _ROUNDING), 2), 1.0)[()]


def _kl_at_least(q, gap):
    """kl(q || q + gap) less its rounding error; nan where the gap reaches 1 - q."""
    with np.errstate(divide="ignore", invalid="ignore"):
        success = -q * np.log1p(gap / q)
        failure = -(1 - q) * np.log1p(-gap / (1 - q))
        return success + failure - _ROUNDING * (failure - success)


@bound("monte-carlo-risk", source="max_information Eq. 98")
@checked(**ESTIMATE)
def monte_carlo_risk(risk, draws, delta_mc, interval="paper"):
    """Upper limit, at level delta_mc, of the mean whose average over `draws` draws was `risk`.

    `paper` is kl^-1(risk, log(2 sqrt(draws) / delta_mc) / draws), Eq. 98. Since the draws are
    independent and in [0, 1], log(2 / delta_mc) is enough: `chernoff`. `clopper-pearson` is exact
    for losses 0 and 1 and the smallest of the three; InputError unless risk is a multiple of
    1 / draws.
    """
    if interval == "clopper-pearson":
        return _clopper_pearson(risk, draws, delta_mc)
    draws = np.asarray(draws, float)
    spread = np.log(draws) / 2 if interval == "paper" else 0.0
    return kl_inverse(risk, _up((np.log(2) - np.log(delta_mc) + spread) / draws))


def _clopper_pearson(risk, draws, delta_mc):
    errors = np.rint(risk * np.asarray(draws, float))
    if np.any(np.abs(errors / draws - risk) > 1e-12):
        allowed = "a multiple of 1/draws (losses 0 and 1) for clopper-pearson"
        raise InputError("risk", f"{np.max(risk)}", allowed)
    limit = betainccinv(errors + 1, np.maximum(draws - errors, 1), delta_mc)
    return np.where(errors == draws, 1.0, np.minimum(limit * (1 + _BETA_ROUNDING), 1.0))[()]


def _up(value):
    return value * (1 + _ROUNDING)


@bound("certificate-exponent", source="max_information Eq. 97")
@checked(**EXPONENT)
def certificate_exponent(kl, kappa, n, K1, K2, delta, delta_mc, beta):
    """(KL + kappa + log(2 K1 K2 sqrt(n) / (delta - delta_mc - beta))) / n, rounded up.

    Raises InputError unless delta_mc + beta < delta.
    """
    check_budget(delta, delta_mc, beta)
    n, delta = np.asarray(n, float), np.asarray(delta, float)
    left = delta - delta_mc - beta - _ROUNDING * delta
    priors = np.log(np.asarray(K1, float)) + np.log(np.asarray(K2, float))
    return _up((kl + kappa + np.log(2) + priors + np.log(n) / 2 - np.log(left)) / n)


@bound("certificate", source="max_information Eq. 97")
@checked(risk=_RISK, **EXPONENT)
def certificate(risk, kl, kappa, n, K1, K2, delta, delta_mc, beta):
    """Upper bound on a posterior's risk, given its risk on the records.

    It holds with probability 1 - (delta - delta_mc); see `certificate_failure`.
    """
    return kl_inverse(risk, certificate_exponent(kl, kappa, n, K1, K2, delta, delta_mc, beta))


@bound("certificate-monte-carlo", source="max_information Eqs. 97 and 98")
@checked(**EXPONENT | ESTIMATE)
def certificate_monte_carlo(
    risk, draws, kl, kappa, n, K1, K2, delta, delta_mc, beta, interval="paper"
):
    """Upper bound on a posterior's risk, given an estimate `risk` from `draws` draws.

    `monte_carlo_risk`, then `certificate`; it holds with probability 1 - delta.
    """
    exponent = certificate_exponent(kl, kappa, n, K1, K2, delta, delta_mc, beta)
    return kl_inverse(monte_carlo_risk(risk, draws, delta_mc, interval), exponent)


@bound("certificate-failure", source="max_information Eq. 97")
@checked(delta=EXPONENT["delta"], delta_mc=EXPONENT["delta_mc"], convention=one_of(*CONVENTIONS))
def certificate_failure(delta, delta_mc, convention="exact"):
    """Probability with which `certificate` may fail: delta - delta_mc; printed, delta + delta_mc.

    The bounds fail with probability delta - delta_mc - beta and the max-information with beta; the
    remaining delta_mc is for the Monte Carlo step.
    """
    check_budget(delta, delta_mc, 0.0)
    return delta - delta_mc if convention == "exact" else delta + delta_mc


@bound("gaussian-kl", source="max_information Eqs. 94 to 96")
@checked(
    mean_gap=real(),
    scale=real(gt=0),
    tau=real(gt=0),
    tau_is=one_of(*TAU_READINGS),
)
def gaussian_kl(mean_gap, scale, tau, tau_is="deviation"):
    """KL of one weight's posterior N(mu + mean_gap, scale^2) from its prior, nats.

    The prior is N(mu, tau^2), or N(mu, tau) where tau is read as a `variance`, as Appendix C calls
    it. KL of independent weights add up.
    """
    deviation = np.sqrt(tau) if tau_is == "variance" else np.asarray(tau, float)
    ratio = scale / deviation
    with np.errstate(over="ignore"):
        spread = (ratio - 1) * (ratio + 1) / 2 - np.log(ratio)
        return np.maximum(spread, 0) + np.square(mean_gap / deviation) / 2
