"""Max-information of a single mechanism: the Gaussian one (Prop. 1) beside pure privacy.

Both are c1 x^2 + c2 x with x = sqrt(m) s / sigma, where the noise sigma N(0, I) is added to a
function of m records of sensitivity s. To compare with pure eps-privacy, Sec. 3.2 inserts the eps
at which the mechanism is (eps, delta)-private, eps = (s / sigma) sqrt(2 log(1.25 / delta)).
Values are in nats, formulas work elementwise and raise `InputError` outside the declared domains.
"""

import numpy as np
from scipy.special import expit

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, real
from dpatlas.errors import InputError

_LEVEL = real(gt=0, lt=1)

# Range of the logit of the share of beta that goes to the noise's tail: a scan of so many points,
# then refinements around the best local minimum.
_SHARES = (-60.0, 20.0)
_SCAN = 257
_POINTS = 65
_ROUNDS = 6


def _check_alpha(alpha, beta):
    """Raise `InputError` unless 1 / alpha >= beta - 1/2, without which q^2 < log(alpha)."""
    if np.any(np.asarray(alpha, float) * (np.asarray(beta) - 0.5) > 1):
        limit = 1 / (np.max(beta) - 0.5)
        allowed = f"a number > 0 and <= 1/(beta - 1/2) = {limit:g}"
        raise InputError("alpha", f"{np.max(alpha)}", allowed)


def _tail(alpha, beta):
    """q^2 = log((1 + alpha / 2) / beta) of Eq. 8."""
    return np.log1p(np.asarray(alpha, float) / 2) - np.log(beta)


@bound("gaussian-leading-coefficient", source="max_information Eq. 8")
@checked(alpha=real(gt=0), beta=_LEVEL)
def gaussian_leading_coefficient(alpha, beta):
    """Coefficient of m s^2 / sigma^2: 3/4 + q/2 + q^2/4, q = sqrt(log((1 + alpha/2) / beta)).

    Raises InputError unless 1 / alpha >= beta - 1/2.
    """
    _check_alpha(alpha, beta)
    q2 = _tail(alpha, beta)
    return 0.75 + np.sqrt(q2) / 2 + q2 / 4


@bound("gaussian-root-coefficient", source="max_information Eq. 8")
@checked(alpha=real(gt=0), beta=_LEVEL)
def gaussian_root_coefficient(alpha, beta):
    """Coefficient of sqrt(m) s / sigma: (1 + q) sqrt(q^2 - log(alpha)).

    q = sqrt(log((1 + alpha/2) / beta)), as in the leading coefficient.
    Raises InputError unless 1 / alpha >= beta - 1/2.
    """
    _check_alpha(alpha, beta)
    # At the limit of alpha the difference is 0 up to rounding, which may be negative.
    rest = np.maximum(np.log(1 / np.asarray(alpha, float) + 0.5) - np.log(beta), 0)
    return (1 + np.sqrt(_tail(alpha, beta))) * np.sqrt(rest)


@bound("pure-dp-leading-coefficient", source="max_information Eq. 30")
@checked(delta=_LEVEL)
def pure_dp_leading_coefficient(delta):
    """Coefficient of m s^2 / sigma^2 for pure privacy: log(1.25 / delta)."""
    return np.log(1.25) - np.log(delta)


@bound("pure-dp-root-coefficient", source="max_information Eq. 30")
@checked(beta=_LEVEL, delta=_LEVEL)
def pure_dp_root_coefficient(beta, delta):
    """Coefficient of sqrt(m) s / sigma for pure privacy: sqrt(log(1.25 / delta) log(2 / beta))."""
    return np.sqrt(pure_dp_leading_coefficient(delta) * (np.log(2) - np.log(beta)))


@bound("leading-term-ratio", source="max_information Eq. 85")
@checked(alpha=real(gt=0), beta=_LEVEL)
def leading_term_ratio(alpha, beta):
    """R: the leading coefficient over that of pure privacy at delta = beta.

    Lemma 6: within [1/4, 2] and rising in both arguments for alpha <= 3 and beta <= 1/2.
    Raises InputError unless 1 / alpha >= beta - 1/2.
    """
    return gaussian_leading_coefficient(alpha, beta) / pure_dp_leading_coefficient(beta)


@bound("max-information-pure-dp", source="max_information Eq. 4")
@checked(n=integer(ge=1), eps=real(gt=0), beta=_LEVEL)
def max_information_pure_dp(n, eps, beta):
    """Max-information of any eps-private algorithm: n eps^2/2 + eps sqrt((n/2) log(2/beta))."""
    n = np.asarray(n, float)
    return n * np.square(eps) / 2 + eps * np.sqrt(n / 2 * (np.log(2) - np.log(beta)))


@bound(
    "max-information-gaussian",
    source="max_information Eq. 8, infimum over alpha; x = sqrt(m) s / sigma",
)
@checked(x=real(gt=0), beta=_LEVEL)
def max_information_gaussian(x, beta):
    """Max-information of one Gaussian mechanism: min c1 x^2 + c2 x over 1 / alpha >= beta - 1/2.

    With w^2 = q^2 - log(alpha), beta = e^(-q^2) + e^(-w^2) / 2 is the sum of the data's tail and
    the noise's. The search is over the noise's share of beta, which gives q and w in closed form.
    """
    with np.errstate(over="ignore", divide="ignore"):
        return _minimum(np.asarray(x, float)[..., None], np.asarray(beta, float)[..., None])[()]


def _minimum(x, beta):
    """`max_information_gaussian` for arrays with a last axis of length 1, which is removed."""
    # The noise's tail is at most 1/2. For beta > 1/2 that is the limit of alpha, with w = 0.
    least_spare = np.exp(-_SHARES[1])
    spare = np.maximum(beta - 0.5, least_spare)
    limit = np.broadcast_to(-np.log(2 * spare), np.broadcast_shapes(x.shape, beta.shape))
    shares = _SHARES[0] + (limit - _SHARES[0]) * np.linspace(0, 1, _SCAN)
    values = _of_share(x, beta, shares)
    # There may be a second local minimum at the limit, which is compared separately below.
    inner = values[..., 1:-1]
    dips = (inner <= values[..., 2:]) & (inner <= values[..., :-2])
    best = np.argmin(np.where(dips, inner, np.inf), axis=-1)[..., None] + 1
    for _ in range(_ROUNDS):
        centre, spacing = np.take_along_axis(shares, best, -1), shares[..., 1:2] - shares[..., :1]
        shares = np.minimum(centre + spacing * np.linspace(-1, 1, _POINTS), limit)
        values = _of_share(x, beta, shares)
        best = np.argmin(values, axis=-1)[..., None]
    at_limit = _of_tails(x, np.sqrt(-np.log(spare)), 0.0)
    at_limit = np.where(beta - 0.5 >= least_spare, at_limit, np.inf)
    return np.minimum(np.min(values, axis=-1), at_limit[..., 0])


def _of_share(x, beta, logit_share):
    """The bound if the share expit(`logit_share`) of beta goes to the noise's tail."""
    w2 = np.maximum(-np.log(2 * beta * expit(logit_share)), 0)
    return _of_tails(x, np.sqrt(-np.log(beta * expit(-logit_share))), np.sqrt(w2))


def _of_tails(x, q, w):
    """c1 x^2 + c2 x with w = sqrt(q^2 - log(alpha))."""
    return x**2 * (0.75 + q / 2 + q**2 / 4) + x * (1 + q) * w
