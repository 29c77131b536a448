"""Utility bounds of DP-SGLD (dp_sgld Sec. 4): expected excess risk on strongly convex losses.

Notation of `theorems`; xi2 = E ||grad L_B(theta*)||^2, d parameters. theta* has to lie inside C:
the proofs take <grad L(theta*), theta - theta*> to be 0. Step sizes are at most 1 / (2 beta).

`convention="paper"` gives what is printed, `"exact"` what the proofs give: twice the printed xi2
term in Lemma 4.1 and Thms 4.1 and 4.2, and the sum of Algorithm 1's decreasing steps instead of an
integral in Lemma 4.3 and Thms 4.3 and 4.4.

Formulas raise `InputError` for what lies outside the declared domains.
"""

import numpy as np

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.theorems import check_curvature, sum_of_steps, symbols

CONVENTIONS = ("exact", "paper")
# The square of a sum of two gradients adds 2 eta^2 xi2, of which Eq. 11 keeps half.
_BATCH_NOISE_FACTOR = {"exact": 2, "paper": 1}

_CONVENTION = one_of(*CONVENTIONS)


def warns_about_utility(eta, beta):
    """Whether eta is too large for the utility results of Sec. 4: above 1 / (2 beta)."""
    return bool(np.any(2 * eta * beta > 1))


@bound("dp-sgld-excess-risk", source="dp_sgld Lemma 4.1")
@checked(
    **symbols("beta", "lam", "eta", "K", "xi2", "d", "distance2"),
    sigma2=real(ge=0),
    convention=_CONVENTION,
)
def excess_risk(beta, lam, eta, K, xi2, d, sigma2, distance2, convention="exact"):
    """Excess risk of the last iterate after K steps of size eta <= 1 / (2 beta).

    (beta/2) distance2 e^(-lam eta K) + beta eta xi2 / lam + beta d sigma2 / lam, where distance2 =
    E ||theta_0 - theta*||^2 (at most 4 L^2 / lam^2: Lemma 4.2). The paper prints half the second
    term, which its proof does not give. Raises InputError for larger steps and for lam > beta.
    """
    check_curvature(lam, beta)
    if warns_about_utility(eta, beta):
        limit = np.min(1 / (2 * np.asarray(beta, float)))
        raise InputError("eta", f"{np.max(eta)}", f"a number > 0 and <= 1/(2 beta) = {limit:g}")
    start = distance2 * np.exp(-lam * eta * np.asarray(K, float))
    batches = _BATCH_NOISE_FACTOR[convention] * eta * xi2 / lam
    return beta / 2 * (start + batches + 2 * d * sigma2 / lam)


@bound("dp-sgld-average-risk", source="dp_sgld Lemma 4.3")
@checked(
    **symbols("beta", "lam", "xi2", "d", "distance2"),
    K=integer(ge=1),
    sigma2=real(ge=0),
    convention=_CONVENTION,
)
def average_risk(beta, lam, K, xi2, d, sigma2, distance2, convention="exact"):
    """Mean excess risk of theta_0 .. theta_{K-1} under eta_k = 1 / (2 beta + lam k / 2).

    (2 beta / K) distance2 + (2 xi2 / K) sum eta_k + 2 d sigma2. The paper has the integral for the
    sum, and states the bound for theta_1 .. theta_K.
    """
    check_curvature(lam, beta)
    steps = "exact" if convention == "exact" else "closed-form"
    total = sum_of_steps(beta, lam, K, steps)
    return 2 * (beta * distance2 + xi2 * total) / K + 2 * d * sigma2


@bound("dp-sgld-utility-rdp", source="dp_sgld Thm 4.1")
@checked(**symbols("alpha", "eps", "L", "lam", "beta", "n", "d", "xi2", convention=_CONVENTION))
def utility_rdp(alpha, eps, L, lam, beta, n, d, xi2, convention="exact"):
    """Excess risk at the paper's sigma2 and K, constant steps: the constants behind its O().

    6 alpha beta d L^2 / (eps lam^2 n^2) + xi2 / (2 lam); the paper prints xi2 / (4 lam).
    """
    check_curvature(lam, beta)
    return _constant_steps(alpha / eps, L, lam, beta, n, d, xi2, convention)


@bound("dp-sgld-utility", source="dp_sgld Thm 4.2")
@checked(**symbols("eps", "delta", "L", "lam", "beta", "n", "d", "xi2", convention=_CONVENTION))
def utility_approximate(eps, delta, L, lam, beta, n, d, xi2, convention="exact"):
    """Excess risk at Thm 4.2's sigma2 and K: `utility_rdp` with alpha/eps <= 8 log(1/delta)/eps^2.

    Raises InputError for eps > 2 log(1/delta), which the theorem leaves out.
    """
    check_curvature(lam, beta)
    return _constant_steps(_order_over_epsilon(eps, delta), L, lam, beta, n, d, xi2, convention)


@bound("dp-sgld-utility-rdp-decreasing", source="dp_sgld Thm 4.3")
@checked(**symbols("alpha", "eps", "L", "lam", "beta", "n", "d", convention=_CONVENTION))
def utility_rdp_decreasing(alpha, eps, L, lam, beta, n, d, convention="exact"):
    """Mean excess risk at the paper's sigma2 and K, decreasing steps.

    18 alpha d L^2 / (eps lam n^2) as printed. With the exact sum of the steps, which exceeds the
    integral by at most eta_0, 18 becomes 18 + (lam / beta)^2.
    """
    check_curvature(lam, beta)
    return _decreasing_steps(alpha / eps, L, lam, beta, n, d, convention)


@bound("dp-sgld-utility-decreasing", source="dp_sgld Thm 4.4")
@checked(**symbols("eps", "delta", "L", "lam", "beta", "n", "d", convention=_CONVENTION))
def utility_approximate_decreasing(eps, delta, L, lam, beta, n, d, convention="exact"):
    """Mean excess risk at Thm 4.4's sigma2 and K; InputError for eps > 2 log(1/delta)."""
    check_curvature(lam, beta)
    return _decreasing_steps(_order_over_epsilon(eps, delta), L, lam, beta, n, d, convention)


def _constant_steps(order_over_epsilon, L, lam, beta, n, d, xi2, convention):
    """Excess risk of Thms 4.1 and 4.2, which differ in alpha / eps."""
    noise = 6 * order_over_epsilon * beta * d * np.square(np.asarray(L, float) / (lam * n))
    return noise + _BATCH_NOISE_FACTOR[convention] * xi2 / (4 * lam)


def _decreasing_steps(order_over_epsilon, L, lam, beta, n, d, convention):
    """Mean excess risk of Thms 4.3 and 4.4, which differ in alpha / eps."""
    factor = 18 + (np.square(np.asarray(lam, float) / beta) if convention == "exact" else 0)
    return factor * order_over_epsilon * d * np.square(np.asarray(L, float) / n) / lam


def _order_over_epsilon(eps, delta):
    """Upper bound 8 log(1/delta) / eps^2 on alpha / (eps / 2), alpha as `calibration_order`."""
    limit = 2 * np.log(1 / delta)
    if np.any(eps > limit):
        raise InputError(
            "eps", f"{np.max(eps)}", f"a number > 0 and <= 2 log(1/delta) = {np.min(limit):g}"
        )
    return 8 * np.log(1 / delta) / eps**2
