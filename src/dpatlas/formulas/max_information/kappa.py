"""Formulas of "From Privacy to Generalization" (Lampert, Zakerinia, 2026): DP-SGD's kappa.

An epoch of DP-SGD visits T disjoint batches of m records, chosen independently of the data, and
adds sigma N(0, I) to the sum of a batch's gradients, each of norm at most zeta. After E epochs
all released outputs together have at most `kappa` nats of beta-approximate max-information about
the n independent records. nu = m zeta^2 / sigma^2. Batches drawn by Poisson sampling are not
covered.

    kappa = E T nu / 2 + E inf (1 / lambda) [T F((lambda + lambda^2) / 2) + log(E / beta)]

over 0 < lambda < sqrt(1 / nu + 1 / 4) - 1 / 2. `kappa` and `kappa_explicit` are the printed bounds,
`kappa_tight` uses a smaller F, and `kappa_repaired` composes epochs without Eq. 84, whose proof has
a gap for E > 1. Bounds for a single mechanism are in `mechanisms`, certificates in `certificates`.

Formulas work elementwise and raise `InputError` for what lies outside the declared domains.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import expit, log_expit

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError

BATCHES = ("disjoint",)
MOMENTS = ("lemma-10", "lifted", "minimum")
Form = Literal["optimised", "explicit", "tight", "repaired"]
Standing = Literal["rigorous", "as printed"]
FORMS: tuple[Form, ...] = get_args(Form)

# logit of u = nu (lambda + lambda^2): enough for T up to 1e18 and log(E / beta) up to 1e260.
_LOGIT_RANGE = (-100.0, 300.0)
# The function is flat at its minimiser: an error of 1e-9 in logit(u) changes no digit of a double.
_HALVINGS = 40

_SETTING = {
    "m": integer(ge=1),
    "zeta": real(gt=0),
    "sigma": real(gt=0),
    "T": integer(ge=1),
    "E": integer(ge=1),
    "beta": real(gt=0, lt=1),
    "batches": one_of(*BATCHES),
}


def check_steps(T, m, n):
    """Raise `InputError` unless T disjoint batches of m fit into n records."""
    fitting = np.floor_divide(n, m)
    if np.any(np.greater(T, fitting)):
        allowed = f"a whole number >= 1 and <= floor(n/m) = {np.min(fitting)}"
        raise InputError("T", f"{np.max(T)}", allowed)


def standing(form: Form, E: int) -> Standing:
    """`rigorous` where the proof has no gap (one epoch, or `repaired`), else `as printed`. Scalars.

    Eq. 84 adds up the max-information of the epochs. That needs a bound for each epoch conditional
    on the outputs of earlier epochs. Given these the records are no longer independent, and
    Theorem 1 covers independent records only.
    """
    return "rigorous" if E == 1 or form == "repaired" else "as printed"


def _lemma_10(u, v, log_v):
    return (4 * u + 0.5) * u / v, u * (0.5 + 8 * u - 4 * u**2) / v**2, 4.5 * u**2 / v**2


def _lifted(u, v, log_v):
    return (u / v - log_v) / 2, u * (1 + v) / v**2 / 2, (u / v**2 + log_v) / 2


# Functions of u = 2 y and v = 1 - u that return F, u dF/du and u dF/du - F, all rising with u.
_EXPONENTS = {"lemma-10": (_lemma_10,), "lifted": (_lifted,), "minimum": (_lemma_10, _lifted)}


@bound("batch-moment-exponent", source="max_information Eq. 54")
@checked(y=real(ge=0, lt=0.5), moment=one_of(*MOMENTS))
def batch_moment_exponent(y, moment="lemma-10"):
    """Bound F on log E exp(x ||G - mu||^2) at y = nu x, G a batch's sum of gradients over sigma.

    `lemma-10` is the printed (16 y^2 + y) / (1 - 2 y). `lifted` is ours, y / (1 - 2 y) -
    log(1 - 2 y) / 2: by e^(a^2 / 2) = E e^(a Z) only the mean and the sub-Gaussian tail of
    ||G - mu|| are needed, and a normal variable of mean sqrt(nu) and variance nu attains it.
    `minimum` is the smaller of the two, which is `lifted` where y > 0.0587.
    """
    u = 2 * np.asarray(y, float)
    return np.min([f(u, 1 - u, np.log1p(-u))[0] for f in _EXPONENTS[moment]], axis=0)[()]


def _ratio(m, zeta, sigma):
    """nu, the squared signal-to-noise ratio of a batch's sum."""
    with np.errstate(over="ignore"):
        return np.asarray(m, float) * np.square(np.asarray(zeta, float) / sigma)


def _log_level(E, beta):
    """log(E / beta)."""
    return np.log(np.asarray(E, float)) - np.log(beta)


def _inverse_lambda(u, nu):
    """1 / lambda at nu (lambda + lambda^2) = u."""
    return (np.sqrt(nu) * np.sqrt(u + nu / 4) + nu / 2) / u


def _infimum(nu, T, log_term, exponent):
    """inf over lambda of (T F + log_term) / lambda, by bisection for a zero of the derivative.

    With s = u dF/du and h = s - F it lies where h + s lambda / (1 + lambda) = log_term / T, and the
    left-hand side rises with lambda.
    """
    target = log_term / T
    shape = np.broadcast_shapes(np.shape(nu), np.shape(target))
    low, high = (np.full(shape, end) for end in _LOGIT_RANGE)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        u, v = expit(middle), expit(-middle)
        _, slope, excess = exponent(u, v, log_expit(-middle))
        below = excess + slope / (1 + _inverse_lambda(u, nu)) < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    u, v = expit(high), expit(-high)
    return (T * exponent(u, v, log_expit(-high))[0] + log_term) * _inverse_lambda(u, nu)


def _epoch(nu, T, log_term, moment):
    """Max-information of one epoch: T nu / 2 and the infimum."""
    T = np.asarray(T, float)
    with np.errstate(over="ignore"):
        infima = [_infimum(nu, T, log_term, exponent) for exponent in _EXPONENTS[moment]]
        return T * nu / 2 + np.min(infima, axis=0)


@bound("kappa", source="max_information Eq. 32")
@checked(**_SETTING)
def kappa(m, zeta, sigma, T, E, beta, batches="disjoint"):
    """Bound on DP-SGD's beta-approximate max-information, nats.

    F is the exponent of Lemma 10, at y = nu (lambda + lambda^2) / 2. For E > 1 the proof of this
    composition has a gap, see `standing`.
    """
    return (E * _epoch(_ratio(m, zeta, sigma), T, _log_level(E, beta), "lemma-10"))[()]


@bound("kappa-tight", source="max_information Eq. 32 with the minimum of F and F2")
@checked(**_SETTING)
def kappa_tight(m, zeta, sigma, T, E, beta, batches="disjoint"):
    """`kappa` with the `minimum` of `batch_moment_exponent` for F: never larger."""
    return (E * _epoch(_ratio(m, zeta, sigma), T, _log_level(E, beta), "minimum"))[()]


@bound("kappa-explicit", source="max_information Eq. 33")
@checked(**_SETTING)
def kappa_explicit(m, zeta, sigma, T, E, beta, batches="disjoint"):
    """Closed form above `kappa`, q = sqrt((2 / T) log(E / beta)).

    E T [nu (1 + 3 q + q^2 / 2) + sqrt(nu) (1/2 + 3 q + q^2 / 2)].
    """
    nu, T = _ratio(m, zeta, sigma), np.asarray(T, float)
    q = np.sqrt(2 * _log_level(E, beta) / T)
    growth = 3 * q + q**2 / 2
    return (E * T * (nu * (1 + growth) + np.sqrt(nu) * (0.5 + growth)))[()]


@bound("kappa-repaired", source="max_information, composition without Eq. 84")
@checked(**{**_SETTING, "E": integer(ge=1, le=1000)}, moment=one_of(*MOMENTS))
def kappa_repaired(m, zeta, sigma, T, E, beta, moment="lemma-10", batches="disjoint"):
    """`kappa` with epochs composed so that the PAC-Bayes bounds are proven for E > 1 too.

    An epoch is charged T nu / 2 + inf (1 / lambda) [T F + log(E / beta) + K], where K is the sum of
    the charges of earlier epochs: given their outputs, an event is at most e^K times as likely as
    for independent records. The sum grows geometrically with E and is inf beyond 1e308.
    """
    nu, log_term = _ratio(m, zeta, sigma), _log_level(E, beta)
    total = np.zeros(np.broadcast_shapes(*map(np.shape, (nu, T, log_term))))
    for epoch in range(int(np.max(E, initial=0))):
        total = total + np.where(epoch < E, _epoch(nu, T, log_term + total, moment), 0.0)
        if np.all(np.isinf(total) | np.less_equal(E, epoch + 1)):
            break
    return total[()]


_KAPPAS: dict[Form, Callable[..., Any]] = {
    "optimised": kappa,
    "explicit": kappa_explicit,
    "tight": kappa_tight,
    "repaired": kappa_repaired,
}


@checked(**_SETTING, form=one_of(*FORMS))
def kappa_of_form(form, m, zeta, sigma, T, E, beta, batches="disjoint"):
    """`kappa` (`optimised`, Eq. 32), `kappa_explicit` (Eq. 33), `kappa_tight`, `kappa_repaired`."""
    return _KAPPAS[form](m, zeta, sigma, T, E, beta, batches=batches)


@bound("kappa-per-record", source="max_information Fig. 2")
@checked(**_SETTING, n=integer(ge=1), form=one_of(*FORMS))
def kappa_per_record(n, m, zeta, sigma, T, E, beta, form="optimised", batches="disjoint"):
    """kappa / n, the prior's part in a certificate. InputError for T > floor(n / m)."""
    check_steps(T, m, n)
    return kappa_of_form(form, m, zeta, sigma, T, E, beta, batches) / n
