"""Two-layer linear networks of lp_fft (Secs. 4.1.1 and 5.2): exact laws and printed bounds.

L(v, B) = ||X B^T v - Y||^2 / 2 with X^T X = I_d, B of shape (h, d), B_0 B_0^T = I_h, and a random
head v_0 ~ N(0, head_var I_h). The noise is that of the main text, for LP

    dv = -grad_v L dt + sqrt(2 sigma2) dQ,

and for FFT "layer-wise" (Eq. 127): sqrt(2 sigma2 d) dQ for v and sqrt(2 sigma2) dQ' for B.

b = B_0 X^T Y, so b_norm2 <= xty_norm^2 = ||X^T Y||^2 <= y_norm2 = ||Y||^2; t_lp and t are the times
of the two phases. LP is an Ornstein-Uhlenbeck process about b, which gives `lp_head_norm` and
`lp_loss` exactly; the bounds on FFT are as printed and do not hold.

`convention="paper"` gives the printed formula, `"exact"` the correct one or, for the bounds, the
one that follows from the paper's own steps. Formulas work elementwise and raise `InputError`
outside the declared domains.
"""

import numpy as np

from dpatlas.base.formulas import bound
from dpatlas.base.guard import Domain, checked, integer, one_of, real
from dpatlas.errors import InputError

CONVENTIONS = ("exact", "paper")

_DOMAINS = {
    "t": real(ge=0),
    "t_lp": real(ge=0),
    "h": integer(ge=1),
    "d": integer(ge=1),
    "head_var": real(ge=0),
    "b_norm2": real(ge=0),
    "xty_norm": real(ge=0),
    "y_norm2": real(ge=0),
    "sigma2": real(ge=0),
    "gamma": real(ge=0),
    "convention": one_of(*CONVENTIONS),
}


def _domains(*names: str, **others: Domain) -> dict[str, Domain]:
    return {**{name: _DOMAINS[name] for name in names}, **others}


def _check_projection(b_norm2, y_norm2):
    """Raise `InputError` unless ||b||^2 <= ||Y||^2."""
    if np.any(np.greater(b_norm2, np.multiply(y_norm2, 1 + 1e-9))):  # equal up to rounding
        allowed = f"a number >= 0 and <= y_norm2 = {np.min(y_norm2):g}"
        raise InputError("b_norm2", f"{np.max(b_norm2):g}", allowed)


def _grown(rate, t):
    """1 - e^(-rate t)."""
    return -np.expm1(-rate * np.asarray(t, float))


@bound("lp-head-norm", source="lp_fft Eq. 161")
@checked(**_domains("t", "h", "head_var", "b_norm2", "sigma2", "convention"))
def lp_head_norm(t, h, head_var, b_norm2, sigma2, convention="exact"):
    """E ||v_t||^2 after LP for time t.

    h head_var e^(-2t) + b_norm2 (1 - e^-t)^2 + h sigma2 (1 - e^(-2t)). The paper
    prints the cross term 2 b_norm2 (e^-t - e^(-2t)) of the square with a plus: too large by
    4 b_norm2 (e^-t - e^(-2t)).
    """
    t = np.asarray(t, float)
    noise = np.asarray(h, float) * (head_var * np.exp(-2 * t) + sigma2 * _grown(2, t))
    exact = noise + b_norm2 * _grown(1, t) ** 2
    if convention == "exact":
        return exact[()]
    return (exact + 4 * b_norm2 * np.exp(-t) * _grown(1, t))[()]


@bound("lp-loss", source="lp_fft exact expected loss under Eq. 121")
@checked(**_domains("t", "y_norm2", "h", "head_var", "b_norm2", "sigma2"))
def lp_loss(t, y_norm2, h, head_var, b_norm2, sigma2):
    """Exact E L after LP for time t.

    (h head_var + b_norm2) e^(-2t) / 2 + h sigma2 (1 - e^(-2t)) / 2 + (y_norm2 - b_norm2) / 2.
    """
    _check_projection(b_norm2, y_norm2)
    h, t = np.asarray(h, float), np.asarray(t, float)
    start = (h * head_var + b_norm2) * np.exp(-2 * t)
    return ((start + h * sigma2 * _grown(2, t) + y_norm2 - b_norm2) / 2)[()]


@bound("lp-loss-bound", source="lp_fft Thm 4.4")
@checked(**_domains("t", "y_norm2", "gamma", "h", "head_var", "sigma2"))
def lp_loss_bound(t, y_norm2, gamma, h, head_var, sigma2):
    """Bound on E L after LP for time t.

    (h head_var + y_norm2) e^-t / 2 + (gamma + h sigma2) (1 - e^-t); gamma is the
    smallest loss that LP can reach, `backbone_error`.
    """
    h, t = np.asarray(h, float), np.asarray(t, float)
    start = (h * head_var + y_norm2) * np.exp(-t) / 2
    return (start + (gamma + h * sigma2) * _grown(1, t))[()]


@bound("least-lp-loss", source="lp_fft Eq. 24, orthonormal features")
@checked(**_domains("y_norm2", "b_norm2", "convention"))
def least_lp_loss(y_norm2, b_norm2, convention="exact"):
    """inf over v of L at B_0: (y_norm2 - b_norm2) / 2. The paper prints twice that."""
    _check_projection(b_norm2, y_norm2)
    return _half(np.subtract(y_norm2, b_norm2), convention)


@checked(X=real(), Y=real(), W=real(), convention=one_of(*CONVENTIONS))
def backbone_error(X, Y, W, convention="exact"):
    """inf over u of ||X W u - Y||^2 / 2, Eq. 24, which prints Y^T (I - P) Y: twice that.

    X: (n, d), Y: (n,), W: (d, h); P projects on the columns of X W.
    """
    features = X @ W
    best, *_ = np.linalg.lstsq(features, Y, rcond=None)
    return float(_half(np.sum((Y - features @ best) ** 2), convention))


def _half(squared, convention):
    return squared / 2 if convention == "exact" else squared


@bound("lp-time-threshold", source="lp_fft Prop. 5.2")
@checked(**_domains("h", "head_var", "sigma2", "convention", b_norm2=real(gt=0)))
def lp_time_threshold(h, head_var, b_norm2, sigma2, convention="exact"):
    """Time of LP at which E ||v||^2, and with it the rate A of FFT's bound, turns.

    exact: it falls before log[1 + h (head_var - sigma2) / b_norm2] and grows after; 0 for more
    noise than head variance. paper: it grows before log[3 + h (sigma2 - head_var) / b_norm2] and
    falls after, which follows from the wrong sign in `lp_head_norm`; 0 if there is no such time.
    """
    excess = np.asarray(h, float) * np.subtract(head_var, sigma2) / b_norm2
    turning = 1 + excess if convention == "exact" else 3 - excess
    return np.log(np.maximum(turning, 1.0))[()]


@checked(**_domains("h", "head_var", "b_norm2", "convention", T=real(ge=0, le=700)))
def lp_fft_noise_window(T, h, head_var, b_norm2, convention="exact"):
    """(low, high) of sigma2 for which Cor. 5.3 has LP-FFT win over LP and FFT at total time T.

    paper: head_var - 2 b_norm2 / h < sigma2 < head_var + (e^T - 3) b_norm2 / h. exact:
    with the correct sign the rate A of FFT's bound grows at the end of LP for time T if sigma2 >
    head_var - (e^T - 1) b_norm2 / h, and there is no upper end. Lower ends below 0 become 0.
    """
    unit = np.asarray(b_norm2, float) / h
    if convention == "paper":
        low, high = head_var - 2 * unit, head_var + (np.exp(T) - 3) * unit
    else:
        low = head_var - np.expm1(T) * unit
        high = np.full_like(low, np.inf)
    return np.maximum(low, 0.0)[()], high[()]


@bound("fft-linear-rate", source="lp_fft Thm 4.5 and Prop. 5.2")
@checked(**_domains("sigma2", "d", head_norm2=real(ge=0)))
def fft_linear_rate(head_norm2, sigma2, d):
    """A = E ||v||^2 - 1 - sqrt(2) sigma2 (1 + d) for the head v with which FFT begins.

    E ||v||^2 is h head_var for a random head, `lp_head_norm` after LP.
    """
    return head_norm2 - 1 - np.sqrt(2.0) * sigma2 * (1.0 + d)


@bound("fft-linear-loss-bound", source="lp_fft Thm 4.5")
@checked(**_domains("t", "h", "head_var", "y_norm2", "xty_norm", "sigma2", "d"))
def fft_linear_loss_bound(t, h, head_var, y_norm2, xty_norm, sigma2, d):
    """Printed bound on E L after FFT for time t; it does not hold.

    (h head_var + y_norm2) e^(-A t) / 2 + L* (1 - e^(-A t)) with A = `fft_linear_rate` and L* =
    sigma2 ((1 + d) xty_norm + d) / A. InputError unless A > 0. Its Ito term lacks a factor d, see
    `fft_linear_loss_drift`, and it leaves out two gaps of Jensen's inequality.
    """
    start_norm2 = np.asarray(h, float) * head_var
    rate = fft_linear_rate(start_norm2, sigma2, d)
    return _relaxed(t, (start_norm2 + y_norm2) / 2, rate, xty_norm, sigma2, d)


@bound("lp-fft-linear-loss-bound", source="lp_fft Prop. 5.2")
@checked(
    **_domains(
        "t_lp", "t", "h", "head_var", "b_norm2", "y_norm2", "xty_norm", "sigma2", "d", "convention"
    )
)
def lp_fft_linear_loss_bound(
    t_lp, t, h, head_var, b_norm2, y_norm2, xty_norm, sigma2, d, convention="exact"
):
    """Printed bound on E L after LP for t_lp and FFT for t, with the true loss after LP.

    `convention` is that of `lp_head_norm` in the rate A. InputError unless A > 0. It fails where
    Thm 4.5 does, its case t_lp = 0.
    """
    start = lp_loss(t_lp, y_norm2, h, head_var, b_norm2, sigma2)
    head_norm2 = lp_head_norm(t_lp, h, head_var, b_norm2, sigma2, convention)
    return _relaxed(t, start, fft_linear_rate(head_norm2, sigma2, d), xty_norm, sigma2, d)


def _relaxed(t, start, rate, xty_norm, sigma2, d):
    """start e^(-rate t) + L* (1 - e^(-rate t)), Eqs. 26 and 29."""
    if np.any(np.less_equal(rate, 0)):
        raise InputError("A", f"{np.min(rate):g}", "more head norm or less noise: a number > 0")
    limit = sigma2 * ((1.0 + d) * xty_norm + d) / rate
    return (start * np.exp(-rate * np.asarray(t, float)) + limit * _grown(rate, t))[()]


@checked(**_domains("sigma2", "convention", v=real(), B=real(), target=real()))
def fft_linear_loss_drift(v, B, target, sigma2, convention="exact"):
    """Ito drift of L under FFT with layer-wise noise, given the parameters.

    -r^T (B^T B + ||v||^2 I) r + sigma2 d (||B||_F^2 + ||v||^2), r = B^T v - X^T Y. Eq. 236 has
    sigma2 (||B||_F^2 + d ||v||^2): the noise of v has d times the variance, and ||B||_F^2 is its
    curvature. v: (..., h), B: (..., h, d), target = X^T Y: (d,).
    """
    d = B.shape[-1]
    residual = np.einsum("...hd,...h->...d", B, v) - target
    v_norm2, B_norm2 = np.sum(v**2, axis=-1), np.sum(B**2, axis=(-2, -1))
    slope_v = np.einsum("...hd,...d->...h", B, residual)
    descent = np.sum(slope_v**2, axis=-1) + v_norm2 * np.sum(residual**2, axis=-1)
    curvature = d * v_norm2 + (d if convention == "exact" else 1) * B_norm2
    return sigma2 * curvature - descent


@bound("fft-linear-flow-bound", source="lp_fft Thm 4.5 without noise, given the head")
@checked(t=real(ge=0), L0=real(ge=0), head_norm2=real(ge=1))
def fft_linear_flow_bound(t, L0, head_norm2):
    """L0 e^(-2 (||v_0||^2 - 1) t): the part of Thm 4.5 that holds, without noise for a given head.

    D = v v^T - B B^T is conserved and ||v||^2 >= lambda_max(D) = ||v_0||^2 - 1. L0 is the loss
    above its infimum (||Y||^2 - ||X^T Y||^2) / 2, a term that the printed bound neglects.
    """
    return L0 * np.exp(-2 * (head_norm2 - 1) * np.asarray(t, float))[()]
