"""Alignment of a two-layer ReLU network's neurons with the data (lp_fft Sec. 3 and Thm 5.1).

Notation of `formulas.relu`; c_j is the class of neuron j, x_bar the unit vector along the sum of
that class's records. A neuron is distorted while cos(w_j, x_bar) falls.

Formulas raise `InputError` for what lies outside the declared domains.
"""

import numpy as np
from scipy.special import log_ndtr

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.formulas.lp_fft.relu import check_labels, check_shape

CONVENTIONS = ("exact", "paper")

_POSITIVE = real(gt=0)
_CHANCE = real(gt=0, lt=1)
_LABELS = real(ge=-1, le=1)


@checked(x=real(), y=_LABELS, W=real())
def neuron_classes(x, y, W):
    """c_j of every neuron, shape (h,): the label of exactly those records that activate it.

    x: (n, d), y: (n,), W: (d, h). Raises InputError where Assumption 3.2 fails: a neuron that is
    active on part of a class, on both classes or on none.
    """
    check_labels(y)
    active = x @ W > 0
    classes = np.zeros(W.shape[1])
    for label in (-1.0, 1.0):
        members = y == label
        if members.any():
            classes[np.all(active == members[:, None], axis=0)] = label
    if not classes.all():
        mixed = int(np.flatnonzero(classes == 0)[0])
        raise InputError("W", f"neuron {mixed}, in neither cone", "Assumption 3.2")
    return classes


@checked(x=real(), y=_LABELS, W=real(), v=real(), losses=real(ge=0))
def cosine_drift(x, y, W, v, losses):
    """d cos(w_j, x_bar)/dt of every neuron under the gradient flow of FFT, shape (h,).

    The identity behind Thms 3.3 and 3.4:

    c_j v_j / ||w_j|| <x_bar - (<x_bar, w_j> / ||w_j||^2) w_j, sum_{y_i = c_j} l_i x_i>.
    x: (n, d), y: (n,), W: (d, h), v: (h,), losses l_i: (n,). Raises InputError as `neuron_classes`.
    """
    check_shape("v", v, W.shape[1:])
    check_shape("losses", losses, y.shape)
    classes = neuron_classes(x, y, W)
    members = (classes[:, None] == y).astype(float)
    means = members @ x
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    pulls = (members * losses) @ x
    norms2 = np.sum(W**2, axis=0)
    along = np.sum(means * W.T, axis=1)
    across = means - (along / norms2)[:, None] * W.T
    return classes * v / np.sqrt(norms2) * np.sum(across * pulls, axis=1)


@bound("feature-distortion-probability", source="lp_fft Thm 3.3")
@checked(h=integer(ge=1))
def distortion_probability(h):
    """Claimed probability that a random head distorts one of h neurons at once: 1 - 2^-h.

    This is the probability that some head entry v_j has the wrong sign, c_j v_j < 0. Such an entry
    distorts its neuron if the losses of a class are nearly equal, as for a small head variance; the
    claim does not hold for every variance.
    """
    return -np.expm1(-np.asarray(h, float) * np.log(2.0))[()]


@bound("two-record-distortion-probability", source="lp_fft Thm 3.3, one neuron and two records")
@checked(head_var=_POSITIVE, spread=_POSITIVE, ratio=real(gt=1))
def two_record_distortion_probability(head_var, spread, ratio):
    """Exact probability that v ~ N(0, head_var) distorts one neuron with two records in a plane.

    x_1 = (a + spread, -b) and x_2 = (a, ratio b), w = (1, 0): the mean lies above w, and
    the record that w prefers below. The cosine falls only for -log(ratio) / spread < v < 0; below
    that, the loss of x_1 outweighs that of x_2. Thm 3.3 says 1/2.
    """
    edge = np.log(ratio) / spread
    return (0.5 - np.exp(log_ndtr(-edge / np.sqrt(np.asarray(head_var, float)))))[()]


@bound("head-shift", source="lp_fft Eq. 86")
@checked(head_var=real(ge=0), delta=_CHANCE)
def head_shift(head_var, delta):
    """sqrt(2 head_var ln(2 / delta)): |v_j(0)| is at most this with probability 1 - delta."""
    return np.sqrt(2 * np.asarray(head_var, float) * np.log(2 / delta))[()]


@bound("lp-alignment-time", source="lp_fft Eqs. 89-90 with the lower bound of Eq. 20, solved for T")
@checked(
    A1=_POSITIVE,
    B1=real(ge=0),
    L0=_POSITIVE,
    least_feature=_POSITIVE,
    head_var=real(ge=0),
    delta=_CHANCE,
)
def lp_alignment_time(A1, B1, L0, least_feature, head_var, delta):
    """Time of LP after which a head entry has its class's sign with probability 1 - delta.

    In the zeroth-order model v_j has moved by at least m int_0^T L dt, m = `least_feature` its
    smallest feature over the class, and A1 int_0^T L dt >= log[1 + A1 L0 (e^(B1 T) - 1) / B1] by
    Thm 4.2. T makes the move equal to the shift s of `head_shift`:
    log[1 + B1 (e^(A1 s / m) - 1) / (A1 L0)] / B1. It falls as the noise grows.
    """
    A1, B1 = np.asarray(A1, float), np.asarray(B1, float)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exponent = A1 * head_shift(head_var, delta) / least_feature
        without_noise = np.expm1(exponent) / (A1 * L0)
        # log(1 + B1 e^a / (A1 L0)) where e^a is beyond doubles.
        log_term = np.where(
            exponent < 700,
            np.log1p(B1 * without_noise),
            exponent + np.log(B1 / (A1 * L0)),
        )
        return np.where(B1 > 0, log_term / B1, without_noise)[()]


@bound("lp-budget-scale", source="lp_fft Eq. 27")
@checked(sigma=_POSITIVE, delta=_CHANCE, convention=one_of(*CONVENTIONS))
def lp_budget_scale(sigma, delta, convention="exact"):
    """A quantity to which LP's budget r in Thm 5.1 is proportional: only its ratios have a meaning.

    The steps of the proof: the loss stays above B1 / A1 ~ sigma^2, so the head turns in a time
    T ~ sqrt(ln(2 / delta)) / sigma^2 (Eq. 94), and r ~ T / sigma^2 (Eq. 18) is sigma^-4 sqrt(ln(2 /
    delta)). The paper prints sigma^4: more noise would need more budget.
    `lp_alignment_time`, which starts from L0, over sigma^2 has exponents from -2 (little noise) to
    -4 (much noise).
    """
    power = {"exact": -4.0, "paper": 4.0}[convention]
    return (np.asarray(sigma, float) ** power * np.sqrt(np.log(2 / delta)))[()]


@checked(features=real(ge=0))
def feature_quality(features):
    """Q of Eq. 94 for every neuron of a class, shape (h,): min_i phi_ij B1 / A1 over sigma^2 / 2.

    features: phi(W^T x_i) of the class's records, shape (n_c, h). InputError for a zero row.
    """
    norms2 = np.sum(features**2, axis=1)
    if not np.all(norms2 > 0):
        raise InputError("features", "a record without features", "an active neuron per record")
    return features.min(axis=0) / (np.sum(features.max(axis=0) ** 2) * np.sum(1 / norms2))
