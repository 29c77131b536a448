"""What DP-SGLD guarantees: hidden-state bounds that hold, and the noise that they require.

Notation of `theorems`. `sensitivity` is how far replacing a record moves the gradient of a step:
2 L over the number of records in the step's mean. Formulas raise `InputError` for what lies outside
the declared domains.
"""

import numpy as np

from dpatlas.accounting.gaussian_dp import amplified, gaussian_mu
from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.theorems import (
    ORDERS,
    check_batch,
    check_curvature,
    check_step_size,
    claimed_rdp,
    rdp_to_epsilon,
    symbols,
)

BATCHES = ("random", "cyclic", "every")
# Longer runs are split into this many blocks of steps; a block counts its largest term throughout.
MAX_BLOCKS = 20_000


def _contraction(eta, lam, beta):
    """1 - c and -log c for the Lipschitz constant c = max(|1 - eta lam|, |1 - eta beta|) of a step.

    Raises InputError unless c < 1. c is at least 2^-53, so that both are finite.
    """
    check_curvature(lam, beta)
    if np.any(eta * beta >= 2):
        limit = np.min(2 / np.asarray(beta, float))
        raise InputError("eta", f"{np.max(eta)}", f"a number > 0 and < 2/beta = {limit:g}")
    gap = np.minimum(np.minimum(eta * lam, 2 - eta * beta), 1 - 2.0**-53)
    return gap, -np.log1p(-gap)


def _one_step(eta, sensitivity, sigma2):
    """Gaussian-DP parameter of a single released step."""
    return eta * sensitivity / np.sqrt(2 * eta * sigma2)


@bound(
    "noisy-gd-gdp",
    source="dp_sgld full batch, exact Gaussian-DP parameter (Bok, Su, Altschuler 2024)",
)
@checked(**symbols("eta", "lam", "beta", "sensitivity", "sigma2", "K"))
def noisy_gd_gdp(eta, lam, beta, sensitivity, sigma2, K):
    """mu of the last of K full-batch steps (m = n), sensitivity = 2 L / n.

    (eta S / sqrt(2 eta sigma2)) sqrt((1 - c^K) / (1 + c^K) (1 + c) / (1 - c)) with
    c = max(|1 - eta lam|, |1 - eta beta|) < 1. Quadratics from a fixed start attain it.
    """
    gap, rate = _contraction(eta, lam, beta)
    growth = np.tanh(K * rate / 2) * (2 - gap) / gap
    return _one_step(eta, sensitivity, sigma2) * np.sqrt(growth)


@checked(**symbols("lam", "beta", "sensitivity", "sigma2", etas=real(gt=0)))
def noisy_gd_gdp_of_steps(etas, lam, beta, sensitivity, sigma2):
    """mu of the last full-batch iterate for step sizes `etas`, shape (K,), scalars otherwise.

    With c_k = max(|1 - eta_k lam|, |1 - eta_k beta|) and w_k the product of the c_j after k,

        mu^2 = (sum_k w_k eta_k S)^2 / (2 sigma2 sum_k w_k^2 eta_k).

    By shifted interpolation (Bok, Su, Altschuler 2024): shifts a_k cost sum_k a_k^2 / (2 eta_k
    sigma2), must add up to sum_k w_k a_k = sum_k w_k eta_k S and may not run ahead of the gap;
    a_k proportional to w_k eta_k is the cheapest (Cauchy, Schwarz) and never does, since w_k does
    not fall. A quadratic from a fixed start attains it.
    """
    if len(etas) == 0:
        return 0.0
    gap, _ = _contraction(etas, lam, beta)
    after = np.append(np.cumprod((1 - gap)[:0:-1])[::-1], 1.0)
    return sensitivity * (after @ etas) / np.sqrt(2 * sigma2 * (after**2 @ etas))


@bound(
    "cyclic-gd-gdp",
    source="dp_sgld cyclic batches, Gaussian-DP parameter (Bok, Su, Altschuler 2024)",
)
@checked(**symbols("eta", "lam", "beta", "sensitivity", "sigma2", "epochs", batches=integer(ge=1)))
def cyclic_gd_gdp(eta, lam, beta, sensitivity, sigma2, batches, epochs):
    """mu after `epochs` passes over the same `batches` disjoint batches, sensitivity = 2 L / m.

    (eta S / sqrt(2 eta sigma2)) sqrt(1 + c^(2l-2) (1 - c^2) / (1 - c^l)^2 (1 - c^(l(E-1))) /
    (1 + c^(l(E-1)))) for l batches and E epochs, c as in `noisy_gd_gdp` with the smoothness of
    every batch's loss.
    """
    gap, rate = _contraction(eta, lam, beta)
    passed = np.tanh(batches * (epochs - 1) * rate / 2)
    one_minus_cl = -np.expm1(-batches * rate)
    earlier = np.exp(-2 * (batches - 1) * rate) * gap * (2 - gap) / one_minus_cl**2
    return _one_step(eta, sensitivity, sigma2) * np.sqrt(1 + earlier * passed)


# What both calibrations of repaired DP-SGLD take.
_CALIBRATED = ("delta", "eta", "lam", "beta")
_TARGET = {"eps": real(ge=0), "sensitivity": real(gt=0)}


@bound("noisy-gd-sigma2", source="dp_sgld full batch, calibrated by the exact Gaussian-DP form")
@checked(**symbols(*_CALIBRATED, K=integer(ge=1), **_TARGET))
def noisy_gd_sigma2(eps, delta, eta, lam, beta, sensitivity, K):
    """The least sigma2 with which `noisy_gd_gdp` gives (eps, delta): repaired DP-SGLD, m = n."""
    return np.square(noisy_gd_gdp(eta, lam, beta, sensitivity, 1.0, K) / gaussian_mu(eps, delta))


@bound("cyclic-gd-sigma2", source="dp_sgld cyclic batches, calibrated by the Gaussian-DP form")
@checked(**symbols(*_CALIBRATED, "epochs", batches=integer(ge=1), **_TARGET))
def cyclic_gd_sigma2(eps, delta, eta, lam, beta, sensitivity, batches, epochs):
    """The least sigma2 with which `cyclic_gd_gdp` gives (eps, delta): repaired DP-SGLD, m < n."""
    mu = cyclic_gd_gdp(eta, lam, beta, sensitivity, 1.0, batches, epochs)
    return np.square(mu / gaussian_mu(eps, delta))


_CONDITIONAL = symbols(
    "lam", "beta", "n", "m", "sigma2", "eta", "K", L=real(ge=0), batches=one_of(*BATCHES)
)


@bound("dp-sgld-conditional-rdp", source="dp_sgld Thm 3.2's proof, conditional on the batches")
@checked(**symbols("alpha"), **_CONDITIONAL)
def conditional_rdp(alpha, L, lam, beta, n, m, sigma2, eta, K, batches="random"):
    """Renyi divergence of order alpha after K steps, given the batches; takes scalars.

    R <- e^(-lam eta / 2) R + [record in batch] 4 alpha L^2 / (lam m^2 sigma2) (1 - e^(-lam eta/2)).
    `every`: the record is in all batches, the worst case. `cyclic`: the record is in every
    floor(n/m)-th batch, the last included. `random`: batches of m of n records, released with the
    last iterate; given the batches, the divergence is a sum over the steps that drew the record,
    so the average of e^((alpha - 1) R) is a product over steps. Beyond 20000 steps an upper bound
    on it is returned. Raises InputError for m > n and for eta >= 1 / beta.
    """
    check_batch(m, n)
    rate = _conditional_rate(L, lam, beta, m, sigma2, eta)
    return _conditional(alpha, rate, lam * eta / 2, n, m, K, batches)


@bound("dp-sgld-conditional-epsilon", source="dp_sgld Thm 3.2's proof, conditional on the batches")
@checked(**symbols("delta"), **_CONDITIONAL)
def conditional_epsilon(L, lam, beta, n, m, sigma2, eta, K, delta, batches="random"):
    """eps at delta from `conditional_rdp`, by Prop. 2.1 over orders 2..1999; takes scalars."""
    check_batch(m, n)
    rate = _conditional_rate(L, lam, beta, m, sigma2, eta)
    return rdp_to_epsilon(_conditional(ORDERS, rate, lam * eta / 2, n, m, K, batches), delta)


def _conditional_rate(L, lam, beta, m, sigma2, eta):
    """What a step that draws the record adds to the divergence, divided by the order."""
    check_curvature(lam, beta)
    check_step_size(eta, beta)
    return claimed_rdp(2.0, L, lam, m, sigma2, eta) / 2


def _conditional(alpha, rate, decay, n, m, K, batches):
    """`conditional_rdp` at one order or an array of them.

    rate: as `_conditional_rate` gives it. decay: lam eta / 2, by whose exponential a step contracts
    the divergence.
    """
    if batches != "random":
        period = 1 if batches == "every" else n // m
        uses = -(-K // period)
        return alpha * rate * np.expm1(-decay * period * uses) / np.expm1(-decay * period)
    # From the last step back, until what a step added has decayed below rounding.
    remembered = int(min(K, np.ceil(36 / decay)))
    block = -(-remembered // MAX_BLOCKS) or 1
    total = np.zeros(np.shape(alpha))
    for start in range(0, remembered, block):
        gain = (alpha - 1) * alpha * rate * np.exp(-decay * start)
        total += min(block, remembered - start) * amplified(gain, m / n)
    return total[()] / (alpha - 1)
