"""Formulas of "Differential Privacy Guarantees for SGLD" (Ryffel, Bach, Pointcheval, 2022).

DP-SGLD starts from theta_0 ~ Proj N(0, (2 sigma2 / lam) I) and takes K steps

    theta <- Proj(theta - eta_k grad L_B(theta) + sqrt(2 eta_k sigma2) Z),

each on the mean loss of a batch of m of n records; only the last iterate is released. The loss of
every record is lam-strongly convex, beta-smooth and L-Lipschitz; neighbours differ in one record
that is replaced.

This module has what the paper claims: privacy (Sec. 3), calibration (Thms 4.1-4.4), constants of
logistic regression (Sec. 5). The claimed privacy does not hold for m < n: the module `exact` shows
that, `guarantees` has what holds instead, and `utility` has the bounds on excess risk.

Formulas work elementwise and raise `InputError` for what lies outside the declared domains.
"""

import numpy as np
from scipy.special import digamma

from dpatlas.base.formulas import bound
from dpatlas.base.guard import Domain, checked, integer, one_of, real
from dpatlas.errors import InputError

SCHEDULES = ("constant", "decreasing")
STEP_SUMS = ("exact", "closed-form")
# Orders over which a Renyi divergence is converted.
ORDERS = np.arange(2, 2000)
# Domains of the paper's symbols. A formula whose domain differs declares its own.
SYMBOLS = {
    "alpha": real(gt=1),
    "eps": real(gt=0),
    "delta": real(gt=0, lt=1),
    "L": real(gt=0),
    "lam": real(gt=0),
    "beta": real(gt=0),
    "beta_over_lambda": real(ge=1),
    "n": integer(ge=1),
    "m": integer(ge=1),
    "d": integer(ge=1),
    "K": integer(ge=0),
    "epochs": integer(ge=1),
    "eta": real(gt=0),
    "sum_eta": real(ge=0),
    "sigma2": real(gt=0),
    "xi2": real(ge=0),
    "distance2": real(ge=0),
    "sensitivity": real(ge=0),
    "feature_norm": real(gt=0),
}


def symbols(*names: str, **others: Domain) -> dict[str, Domain]:
    """Domains for `checked`: those of `SYMBOLS` for `names`, and `others` with domains given."""
    return {**{name: SYMBOLS[name] for name in names}, **others}


def check_step_size(eta, beta):
    """Raise `InputError` with the limit unless eta < 1 / beta, as Thm 3.2 asks."""
    if np.any(eta * beta >= 1):
        limit = np.min(1 / np.asarray(beta, float))
        raise InputError("eta", f"{np.max(eta)}", f"a number > 0 and < 1/beta = {limit:g}")


def check_curvature(lam, beta):
    """Raise `InputError` unless lam <= beta."""
    if np.any(lam > beta):
        raise InputError("lam", f"{np.max(lam)}", f"a number > 0 and <= beta = {np.min(beta):g}")


def check_batch(m, n):
    """Raise `InputError` unless m <= n."""
    if np.any(m > n):
        raise InputError("m", f"{np.max(m)}", f"a whole number >= 1 and <= n = {np.min(n)}")


@bound("dp-sgld-sum-of-steps", source="dp_sgld Cor. 3.3")
@checked(**symbols("beta", "lam", "K", steps=one_of(*STEP_SUMS)))
def sum_of_steps(beta, lam, K, steps="exact"):
    """Sum of the decreasing step sizes eta_k = 1 / (2 beta + lam k / 2), k = 0 .. K-1.

    `closed-form` is what Cor. 3.3 puts in its place: (2 / lam) log(1 + lam K / (4 beta)), the
    integral from 0 to K of a decreasing function, hence too small.
    """
    start = 4 * np.asarray(beta, float) / lam
    integral = np.log1p(K / start)
    if steps == "closed-form":
        return 2 / lam * integral
    end = start + K
    # Euler-Maclaurin where digamma(end) - digamma(start) would cancel; below 30 it does not.
    corrections = K / (start * end) / 2 + sum(
        weight * (start**-power - end**-power)
        for weight, power in ((1 / 12, 2.0), (-1 / 120, 4.0), (1 / 252, 6.0))
    )
    total = np.where(start < 30, digamma(end) - digamma(start), integral + corrections)
    return (2 / lam * total)[()]


@bound("dp-sgld-claimed-rdp", source="dp_sgld Thm 3.2")
@checked(**symbols("alpha", "lam", "n", "sigma2", "sum_eta", L=real(ge=0)))
def claimed_rdp(alpha, L, lam, n, sigma2, sum_eta):
    """Claimed Renyi divergence of order alpha after steps of total size `sum_eta`.

    4 alpha L^2 / (lam n^2 sigma2) (1 - exp(-lam sum_eta / 2)). It is proven for m = n only
    (Chourasia, Ye, Shokri 2021); smaller batches exceed it.
    """
    return alpha * _claimed_rate(L, lam, n, sigma2, sum_eta)


def _claimed_rate(L, lam, n, sigma2, sum_eta):
    """The claimed divergence divided by its order."""
    # n as a float: n**2 of a large whole number could overflow int64 in an array.
    scale = np.square(np.asarray(L, float) / n)
    return 4 * scale / (lam * sigma2) * -np.expm1(-lam * sum_eta / 2)


@bound("dp-sgld-claimed-rdp-lsi", source="dp_sgld Thm 3.1")
@checked(**symbols("alpha", "n", "sigma2", "sum_eta", L=real(ge=0), c=real(ge=0)))
def claimed_rdp_lsi(alpha, L, c, n, sigma2, sum_eta):
    """`claimed_rdp` of iterates that satisfy a log-Sobolev inequality with constant c.

    2 alpha L^2 / (c n^2 sigma2^2) (1 - exp(-sigma2 c sum_eta)), which falls with c: at c = 0 its
    limit 2 alpha L^2 sum_eta / (n^2 sigma2), the most that the theorem claims for any c. Thm 3.2 is
    c = lam / (2 sigma2).
    """
    x = np.asarray(c, float) * sigma2 * sum_eta
    kept = np.divide(-np.expm1(-x), x, out=np.ones_like(x), where=x > 0)
    return (2 * alpha * np.square(np.asarray(L, float) / n) * sum_eta / sigma2 * kept)[()]


@bound("dp-sgld-claimed-rdp-constant", source="dp_sgld Cor. 3.2")
@checked(**symbols("alpha", "lam", "beta", "n", "sigma2", "eta", "K", L=real(ge=0)))
def claimed_rdp_constant(alpha, L, lam, beta, n, sigma2, eta, K):
    """`claimed_rdp` after K steps of size eta; InputError unless eta < 1 / beta."""
    check_curvature(lam, beta)
    check_step_size(eta, beta)
    return claimed_rdp(alpha, L, lam, n, sigma2, eta * np.asarray(K, float))


@bound("dp-sgld-claimed-rdp-decreasing", source="dp_sgld Cor. 3.3")
@checked(
    **symbols("alpha", "lam", "beta", "n", "sigma2", "K", L=real(ge=0), steps=one_of(*STEP_SUMS))
)
def claimed_rdp_decreasing(alpha, L, lam, beta, n, sigma2, K, steps="exact"):
    """`claimed_rdp` after K steps of size 1 / (2 beta + lam k / 2), k = 0 .. K-1.

    `closed-form` prints lam K / (4 beta + lam K) for the last factor: slightly too small.
    """
    check_curvature(lam, beta)
    return claimed_rdp(alpha, L, lam, n, sigma2, sum_of_steps(beta, lam, K, steps))


@bound("dp-sgld-claimed-epsilon", source="dp_sgld Thm 3.2 and Prop. 2.1, integer orders 2..1999")
@checked(**symbols("lam", "n", "sigma2", "sum_eta", "delta", L=real(ge=0)))
def claimed_epsilon(L, lam, n, sigma2, sum_eta, delta):
    """Claimed eps at delta after steps of total size `sum_eta`.

    The minimum of claimed_rdp(alpha) + log(1/delta) / (alpha - 1) over integer orders 2..1999. So
    eps is never below log(1/delta) / 1998. `claimed_epsilon_real` is over real orders.
    """
    rate = np.asarray(_claimed_rate(L, lam, n, sigma2, sum_eta))
    return rdp_to_epsilon(rate[..., None] * ORDERS, delta)


@bound("dp-sgld-claimed-epsilon-real", source="dp_sgld Thm 3.2 and Prop. 2.1, real orders")
@checked(**symbols("lam", "n", "sigma2", "sum_eta", "delta", L=real(ge=0)))
def claimed_epsilon_real(L, lam, n, sigma2, sum_eta, delta):
    """Claimed eps at delta after steps of total size `sum_eta`.

    The least claimed_rdp(alpha) + log(1/delta) / (alpha - 1) over all real orders alpha > 1. With c
    the claimed divergence divided by its order, alpha = 1 + sqrt(log(1/delta) / c) is the best
    order and gives c + 2 sqrt(c log(1/delta)).
    """
    rate = np.asarray(_claimed_rate(L, lam, n, sigma2, sum_eta))
    return rate + 2 * np.sqrt(rate * np.log(1 / delta))


def rdp_to_epsilon(divergences, delta):
    """eps at delta from Renyi divergences at `ORDERS` (last axis), by Prop. 2.1."""
    return np.min(divergences + np.log(1 / delta) / (ORDERS - 1), axis=-1)


@bound("dp-sgld-claimed-epsilon-constant", source="dp_sgld Cor. 3.2 and Prop. 2.1")
@checked(**symbols("lam", "beta", "n", "sigma2", "eta", "K", "delta", L=real(ge=0)))
def claimed_epsilon_constant(L, lam, beta, n, sigma2, eta, K, delta):
    """`claimed_epsilon` after K steps of size eta; InputError unless eta < 1 / beta."""
    check_curvature(lam, beta)
    check_step_size(eta, beta)
    return claimed_epsilon(L, lam, n, sigma2, eta * np.asarray(K, float), delta)


@bound("dp-sgld-claimed-epsilon-decreasing", source="dp_sgld Cor. 3.3 and Prop. 2.1")
@checked(
    **symbols("lam", "beta", "n", "sigma2", "K", "delta", L=real(ge=0), steps=one_of(*STEP_SUMS))
)
def claimed_epsilon_decreasing(L, lam, beta, n, sigma2, K, delta, steps="exact"):
    """`claimed_epsilon` after K steps of size 1 / (2 beta + lam k / 2), k = 0 .. K-1."""
    check_curvature(lam, beta)
    return claimed_epsilon(L, lam, n, sigma2, sum_of_steps(beta, lam, K, steps), delta)


@bound("dp-sgld-claimed-sigma2", source="dp_sgld Thm 3.2 and Prop. 2.1, solved for the noise")
@checked(**symbols("eps", "delta", "L", "lam", "n", sum_eta=real(gt=0)))
def claimed_sigma2(eps, delta, L, lam, n, sum_eta):
    """The sigma2 at which `claimed_epsilon` is eps.

    Raises InputError for an eps that no noise reaches with orders up to 1999.
    """
    delta = np.asarray(delta, float)[..., None]
    spare = np.asarray(eps, float)[..., None] - np.log(1 / delta) / (ORDERS - 1)
    rate = np.max(spare / ORDERS, axis=-1)
    if np.any(rate <= 0):
        least = np.max(np.log(1 / delta)) / (ORDERS[-1] - 1)
        raise InputError("eps", f"{np.min(eps)}", f"a number > log(1/delta)/1998 = {least:g}")
    return _claimed_rate(L, lam, n, 1.0, sum_eta) / rate


@bound("dp-sgld-sigma2-rdp", source="dp_sgld Thms 4.1 and 4.3")
@checked(**symbols("alpha", "eps", "L", "lam", "n"))
def sigma2_rdp(alpha, eps, L, lam, n):
    """Noise for a claimed divergence eps of order alpha after any number of steps.

    4 alpha L^2 / (eps lam n^2).
    """
    return 4 * alpha * np.square(np.asarray(L, float) / n) / (eps * lam)


@bound("dp-sgld-sigma2", source="dp_sgld Thm 4.2")
@checked(**symbols("eps", "delta", "L", "lam", "n"))
def sigma2_approximate(eps, delta, L, lam, n):
    """Noise for a claimed (eps, delta) after any number of steps (Thms 4.2 and 4.4).

    8 L^2 (eps + 2 log(1/delta)) / (eps^2 lam n^2): half of eps goes to the divergence of order
    1 + 2 log(1/delta) / eps, half to its conversion.
    """
    return sigma2_rdp(calibration_order(eps, delta), eps / 2, L, lam, n)


@checked(**symbols("eps", "delta"))
def calibration_order(eps, delta):
    """Renyi order alpha = 1 + 2 log(1/delta) / eps of Thms 4.2 and 4.4.

    They are Thms 4.1 and 4.3 at this order and divergence eps / 2.
    """
    return 1 + 2 / eps * np.log(1 / delta)


@bound("dp-sgld-steps-rdp", source="dp_sgld Thms 4.1 and 4.3")
@checked(**symbols("alpha", "eps", "beta", "lam", "n", "d", schedule=one_of(*SCHEDULES)))
def steps_rdp(alpha, eps, beta, lam, n, d, schedule="constant"):
    """The paper's number of steps under a divergence eps of order alpha, not rounded.

    With r = eps n^2 / (alpha d) for d parameters: (2 beta / lam) log r for eta = 1 / (2 beta), and
    max((beta / lam) r, (lam / beta) r^2) for decreasing steps. Raises InputError for r <= 1, where
    the logarithm is not positive.
    """
    ratio = eps * np.square(np.asarray(n, float)) / (alpha * d)
    return _steps(ratio, beta, lam, d, schedule)


@bound("dp-sgld-steps", source="dp_sgld Thm 4.2")
@checked(**symbols("eps", "delta", "beta", "lam", "n", "d", schedule=one_of(*SCHEDULES)))
def steps_approximate(eps, delta, beta, lam, n, d, schedule="constant"):
    """The paper's number of steps under (eps, delta), not rounded (Thms 4.2 and 4.4).

    As `steps_rdp` with r = eps^2 n^2 / (4 log(1/delta) d).
    """
    ratio = np.square(eps * np.asarray(n, float)) / (4 * np.log(1 / delta) * d)
    return _steps(ratio, beta, lam, d, schedule)


def _steps(ratio, beta, lam, d, schedule):
    """Number of steps K from the ratio r of `steps_rdp`."""
    if np.any(ratio <= 1):
        raise InputError("d", f"{np.max(d)}", f"a whole number < {np.min(ratio * d):g}")
    condition = np.asarray(beta, float) / lam
    if schedule == "decreasing":
        return np.maximum(condition * ratio, np.square(ratio) / condition)
    return 2 * condition * np.log(ratio)


@bound("dp-sgld-noise-multiplier", source="dp_sgld Thm 4.2 as a sampled Gaussian")
@checked(**symbols("n", "m", "eps", "delta", "beta_over_lambda"))
def noise_multiplier(n, m, eps, delta, beta_over_lambda):
    """Noise of a step over its sensitivity at Thm 4.2's noise and eta = 1 / (2 beta).

    sqrt(2 sigma2 / eta) / (2 L / m), since replacing a record moves the mean gradient by at most
    2 L / m. L cancels. This is half of `step_noise_multiplier`, which divides by L / m.
    """
    check_batch(m, n)
    sigma2 = sigma2_approximate(eps, delta, 1.0, 1.0, n)
    return step_noise_multiplier(1 / (2 * beta_over_lambda), sigma2, 1.0, m) / 2


@bound("dp-sgld-step-noise-multiplier", source="dp_sgld Algorithm 1 as a sampled Gaussian")
@checked(**symbols("eta", "sigma2", "L", "m"))
def step_noise_multiplier(eta, sigma2, L, m):
    """Noise deviation of the sum of a batch's gradients over L: m sqrt(2 sigma2 / eta) / L.

    It is the noise multiplier of DP-SGD with max_grad_norm L and expected batch m.
    """
    return m * np.sqrt(2 * sigma2 / eta) / L


@bound("dp-sgld-table4-ratio", source="dp_sgld Table 4")
@checked(**symbols("n", "eps", "delta", "d", "beta_over_lambda"))
def table4_ratio(n, eps, delta, d, beta_over_lambda):
    """Table 4's last column: eps n^2 / (alpha d) / (beta / lam)^2.

    alpha = 1 + 2 log(1/delta) / eps. It decides between the two branches of K in Thms 4.3 and 4.4,
    where d counts parameters; the printed values follow with d = number of classes.
    """
    squares = np.square(np.asarray(n, float) / beta_over_lambda)
    return eps * squares / (calibration_order(eps, delta) * d)


@bound("dp-sgld-smoothness", source="dp_sgld Lemma 5.1 per record")
@checked(**symbols("feature_norm", "lam"))
def smoothness(feature_norm, lam):
    """beta of every single record: feature_norm^2 / 2 + lam, with ||x|| <= feature_norm.

    All constants here are of softmax regression with regulariser (lam / 2) ||W||^2; the printed
    lam ||W||^2 would add 2 lam. This smoothness is what the theorem needs, and it is public where
    feature_norm is.
    """
    return np.square(np.asarray(feature_norm, float)) / 2 + lam


@checked(**symbols("lam", features=real()))
def smoothness_of_mean(features, lam):
    """beta of Lemma 5.1: lambda_max(mean x x^T) / 2 + lam, from `features` of shape (n, p).

    It is the smoothness of the mean loss only, and private information. Raises InputError for
    features of another shape.
    """
    if features.ndim != 2 or 0 in features.shape:
        raise InputError("features", f"shape {features.shape}", "an array of shape (n, p)")
    largest = np.linalg.norm(np.asarray(features, float), ord=2)
    return largest**2 / len(features) / 2 + lam


@bound("dp-sgld-lipschitz", source="dp_sgld Sec. 5.1")
@checked(**symbols("feature_norm"))
def lipschitz(feature_norm):
    """L of the cross-entropy of one record: sqrt(2) feature_norm.

    Without the regulariser, whose gradient is common to both neighbours.
    """
    return np.sqrt(2) * feature_norm


@bound("dp-sgld-radius", source="dp_sgld Sec. 3, end")
@checked(**symbols("feature_norm", "lam", classes=integer(ge=2)))
def radius(feature_norm, lam, classes):
    """A ball around 0 that holds the minimiser of every data set.

    min(sqrt(2 log C / lam), sqrt(2) feature_norm / lam): the loss at 0, and its Lipschitz constant.
    """
    at_zero = np.sqrt(2 * np.log(classes) / lam)
    return np.minimum(at_zero, lipschitz(feature_norm) / lam)
