"""Formulas of lp_fft (private fine-tuning distorts features): losses of two-layer ReLU networks.

f(x) = v . phi(W^T x) with phi = relu, W of shape (d, h) with columns w_j; labels y are -1 or 1 and
l_i = exp(-y_i f(x_i)). Linear probing (LP) trains v, full fine-tuning (FFT) trains v and W. In the
zeroth-order model parameters follow gradient flow and the losses keep the Ito drift of

    d theta = -grad L dt + sigma dQ,

the convention of the ReLU proofs. The main text and the linear networks have sqrt(2 sigma^2) dQ:
put sqrt(2) sigma here to compare.

A class is the set of records with one label. Under Assumption 3.2 all of them activate the same
neurons, "the class's neurons", which no other record activates. The bounds of Thms 4.2 and 4.3 are
about the loss L of one class. They are proven for the zeroth-order model; the expected loss of the
diffusion can be below the lower one. `formulas.alignment` has the alignment of neurons,
`formulas.linear` and `formulas.imbalance` have linear networks.

Formulas raise `InputError` for what lies outside the declared domains.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import exprel

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError

TRAINED = ("head", "all")

_LOSS = real(gt=0)
_TIME = real(ge=0)
_SIZE = real(ge=0)
_LABELS = real(ge=-1, le=1)


class LossCoefficients(NamedTuple):
    """(A, B) of Eq. 20, of its lower and of its upper bound."""

    A1: float
    B1: float
    A2: float
    B2: float


class FftLowerCoefficients(NamedTuple):
    """Coefficients of Eq. 22, in the order of `fft_loss_lower`."""

    A: float
    B: float
    C: float
    gamma: float


class FftUpperCoefficients(NamedTuple):
    """Coefficients of Eq. 23, in the order of `fft_loss_upper`."""

    A: float
    B: float
    C: float


def check_labels(y):
    """Raise `InputError` unless all labels are -1 or 1."""
    if not np.all(np.abs(y) == 1):
        raise InputError("y", f"labels {np.unique(y)[:4]}", "labels -1 and 1")


@bound("zeroth-order-error", source="lp_fft Eq. 9")
@checked(sigma=_SIZE, p=integer(ge=1), t=_TIME, n=integer(ge=1), C=_SIZE)
def zeroth_order_error(sigma, p, t, n, C):
    """Bound on E ||theta_t - theta~_t||^2 with per-record gradients clipped to C (Thm 2.2).

    (sigma sqrt(2 p t) + 2 n C t)^2 for p parameters and n records, noise sqrt(2 sigma^2) dQ.
    """
    t = np.asarray(t, float)
    return np.square(sigma * np.sqrt(2.0 * p * t) + 2.0 * n * C * t)[()]


def _logistic_loss(L0, gain, growth, clock):
    """Solution of dL/ds = -gain L^2 + growth L at s = clock, from L0.

    [e^(-growth s) / L0 + (gain / growth) (1 - e^(-growth s))]^-1, with its limit at growth = 0.
    """
    gain, growth, clock = (np.asarray(value, float) for value in (gain, growth, clock))
    with np.errstate(all="ignore"):
        exponent = np.where(growth > 0, growth * clock, 0.0)
        elapsed = np.where(growth > 0, -np.expm1(-exponent) / growth, clock)
        gained = np.where(gain > 0, gain * elapsed, 0.0)
        return (1 / (np.exp(-exponent) / L0 + gained))[()]


@bound("lp-relu-loss-bound", source="lp_fft Eq. 20")
@checked(L0=_LOSS, A=_SIZE, B=_SIZE, T=_TIME)
def lp_relu_loss_bound(L0, A, B, T):
    """Bound on a class's loss after LP for time T, from L0 (Thm 4.2).

    [e^(-B T) / L0 + (A / B) (1 - e^(-B T))]^-1: the lower bound for (A1, B1) of
    `lp_relu_coefficients`, the upper one for (A2, B2).
    """
    return _logistic_loss(L0, A, B, T)


@checked(features=_SIZE, sigma=_SIZE)
def lp_relu_coefficients(features, sigma) -> LossCoefficients:
    """Coefficients of Thm 4.2 for one class, Eq. 21.

    features: phi(W^T x_i) of the class's records, shape (n_c, h). A1 and A2 sum the squares of each
    neuron's largest and smallest feature; B1 = sigma^2/2 (sum_i ||phi_i||^-2)^-1 and B2 =
    sigma^2/2 (sum_i ||phi_i||^4)^(1/2). A record that activates nothing makes B1 zero.
    """
    features = _array("features", features, 2)
    norms2 = np.sum(features**2, axis=1)
    with np.errstate(divide="ignore"):
        least = 1 / np.sum(1 / norms2)
    noise = sigma**2 / 2
    return LossCoefficients(
        A1=float(np.sum(features.max(axis=0) ** 2)),
        B1=float(noise * least),
        A2=float(np.sum(features.min(axis=0) ** 2)),
        B2=float(noise * np.sqrt(np.sum(norms2**2))),
    )


def lp_relu_loss_bounds(features, L0, sigma, T):
    """(lower, upper) bound on a class's loss at times T of LP: Thm 4.2 from its features."""
    A1, B1, A2, B2 = lp_relu_coefficients(features, sigma)
    return lp_relu_loss_bound(L0, A1, B1, T), lp_relu_loss_bound(L0, A2, B2, T)


@bound("fft-loss-lower", source="lp_fft Eq. 22")
@checked(L0=_LOSS, A=real(gt=0), B=_SIZE, C=_SIZE, gamma=_SIZE, T=_TIME)
def fft_loss_lower(L0, A, B, C, gamma, T):
    """Lower bound on a class's loss after FFT for time T (Thm 4.3 i).

    [omega / L0 + (B / C) (1 - omega)]^-1 with omega = exp[(1 - e^(gamma T)) A C / gamma].
    """
    T = np.asarray(T, float)
    with np.errstate(over="ignore"):
        clock = A * T * exprel(gamma * T)  # A (e^(gamma T) - 1) / gamma
    return _logistic_loss(L0, B, C, clock)


@bound("fft-loss-upper", source="lp_fft Eq. 23")
@checked(L0=_LOSS, A=real(gt=0), B=_SIZE, C=_SIZE, T=_TIME)
def fft_loss_upper(L0, A, B, C, T):
    """Upper bound on a class's loss after FFT for time T (Thm 4.3 ii).

    [(B / C) (1 - e^(-A C T)) + e^(-A C T) / L0]^-1.
    """
    with np.errstate(over="ignore"):
        clock = A * np.asarray(T, float)
    return _logistic_loss(L0, B, C, clock)


@checked(R=real(gt=0), mu=real(ge=0, le=1), W_norm2=_SIZE, L0=_LOSS, sigma=_SIZE)
def fft_lower_coefficients(R, mu, W_norm2, L0, sigma) -> FftLowerCoefficients:
    """Coefficients of Eq. 22: records of norm R, coherence mu, ||W_0||_F^2, a class's loss L0.

    A = ||W_0||_F^2, B = 2 R^2, C = R^2 sigma^2 (1 + mu^2) / 2, gamma = 2 R L0. The initialisation
    has to be balanced: ||W_0||_F = ||v_0||.
    """
    return FftLowerCoefficients(W_norm2, 2 * R**2, R**2 * sigma**2 * (1 + mu**2) / 2, 2 * R * L0)


@checked(R=real(gt=0), mu=real(ge=0, le=1), v=real(), W=real(), sigma=_SIZE)
def fft_upper_coefficients(R, mu, v, W, sigma) -> FftUpperCoefficients:
    """Coefficients of Eq. 23: head v (h_c,) and columns W (d, h_c) of the class's neurons.

    A = sum_j (v_j^2 + ||w_j||^2) at the start, B = R^2 mu^2, C = R^2 sigma^2 / 2.
    """
    v, W = _array("v", v, 1), _array("W", W, 2)
    check_shape("v", v, W.shape[1:])
    return FftUpperCoefficients(
        float(np.sum(v**2) + np.sum(W**2)), R**2 * mu**2, R**2 * sigma**2 / 2
    )


def fft_relu_loss_bounds(R, mu, v, W, L0, sigma, T):
    """(lower, upper) bound on a class's loss at times T of FFT: Thm 4.3 from the class's neurons.

    The lower bound takes ||W_0||_F^2 of the class's neurons alone, since no other neuron changes
    the loss of the class. The proofs use ||W|| = ||v||, cos(w_j, x_i) >= mu, L0 >= C / B, and for
    the upper bound that every v_j has the sign of its class: otherwise ||w_j|| and |v_j| first
    shrink and it fails.
    """
    lower = fft_lower_coefficients(R, mu, float(np.sum(np.square(W))), L0, sigma)
    upper = fft_upper_coefficients(R, mu, v, W, sigma)
    return fft_loss_lower(L0, *lower, T), fft_loss_upper(L0, *upper, T)


@checked(x=real(), y=_LABELS)
def data_coherence(x, y):
    """mu = min over pairs of y_i y_k cos(x_i, x_k), Eq. 11; Assumption 3.1 is mu > 0.

    x: (n, d) without zero rows, y: (n,).
    """
    x, y = _array("x", x, 2), _array("y", y, 1)
    check_labels(y)
    check_shape("y", y, x.shape[:1])
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    return float(np.min(np.outer(y, y) * (units @ units.T)))


@checked(x=real(), W=real(), v=real(), trained=one_of(*TRAINED))
def tangent_kernel(x, W, v, trained="all"):
    """<J_i, J_k> of the outputs f(x_i) in the trained parameters, shape (n, n).

    The kernel along which losses move in the zeroth-order model of Thms 4.2 and 4.3. x: (n, d),
    W: (d, h), v: (h,). `head`: phi_i . phi_k. `all` adds x_i . x_k times the sum of v_j^2 over the
    neurons that both activate.
    """
    x, W, v = _array("x", x, 2), _array("W", W, 2), _array("v", v, 1)
    check_shape("v", v, W.shape[1:])
    outputs = x @ W
    features = np.maximum(outputs, 0.0)
    kernel = features @ features.T
    if trained == "head":
        return kernel
    active = (outputs > 0).astype(float)
    return kernel + (x @ x.T) * ((active * v**2) @ active.T)


@checked(losses=_SIZE, y=_LABELS, kernel=real(), sigma=_SIZE)
def zeroth_order_loss_drift(losses, y, kernel, sigma):
    """dl_i/dt = -l_i sum_k y_i y_k l_k <J_i, J_k> + sigma^2 l_i ||J_i||^2 / 2, Eq. 2 at order zero.

    losses: (..., n), y: (n,), kernel: (n, n) of `tangent_kernel`. The Hessian of f is left out: for
    FFT its trace is zero where no unit is at its kink.
    """
    pull = y * ((y * losses) @ kernel)
    return losses * (sigma**2 / 2 * np.diagonal(kernel) - pull)


def check_shape(name, values, shape):
    """Raise `InputError` unless the array `values` has this shape."""
    if values.shape != tuple(shape):
        raise InputError(name, f"an array of shape {values.shape}", f"shape {tuple(shape)}")


def _array(name, values, axes):
    values = np.asarray(values, float)
    if values.ndim != axes or values.size == 0:
        allowed = f"{axes} axes and at least one element"
        raise InputError(name, f"an array of shape {values.shape}", allowed)
    return values
