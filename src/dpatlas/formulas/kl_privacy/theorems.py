"""Formulas of "Initialization Matters" (Ye, Zhu, Liu, Shokri, Cevher, 2023).

Noisy gradient descent on the mean loss of n records trains a fully connected ReLU network without
biases: L weight matrices, hidden width m, d inputs with ||x||^2 = d, o outputs, Gaussian weights
with variance beta_l in layer l. `sigma2` is the noise variance of the Langevin step
`W <- W - eta grad + sqrt(2 eta sigma2) Z`; KL values are in nats.

`convention="paper"` gives what is printed, `"exact"` what our checks support. All functions
raise `InputError` for scalars and arrays outside the declared domains, and work elementwise.
"""

import numpy as np

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real

INITS = ("lecun", "he", "ntk", "xavier")
CONVENTIONS = ("exact", "paper")
RELATIONS = ("remove", "add", "simple")

# The law of one step is N(., 2 eta sigma2 I): its KL is ||mean gap||^2 / (4 eta sigma2), where
# the paper prints 2.
_KL_DENOMINATOR = {"exact": 4, "paper": 2}
# Both gradients of Eq. 21 move, each by at most max(c, beta dist): (2 max)^2 doubled by Cauchy-
# Schwarz is 8, where the paper prints 2.
_DRIFT_FACTOR = {"exact": 8, "paper": 2}
# Ito's correction in Eq. 49 is 2 sigma2 rank (as in Eq. 25), where the paper prints sigma2 rank.
_EXCESS_NOISE_FACTOR = {"exact": 1.0, "paper": 0.5}

_INIT = one_of(*INITS)
_CONVENTION = one_of(*CONVENTIONS)
_COUNT = integer(ge=1)
# At most 1000 so that 2^L stays a finite double.
_DEPTH = integer(ge=2, le=1000)


@bound("kl-step", source="kl_privacy Eq. 77")
@checked(eta=real(gt=0), sigma2=real(gt=0), delta_norm2=real(ge=0), convention=_CONVENTION)
def kl_step(eta, sigma2, delta_norm2, convention="exact"):
    """KL divergence of one noisy step whose squared gradient gap is `delta_norm2`.

    eta ||grad L(W; D) - grad L(W; D')||^2 / (4 sigma2); summed over steps and averaged over runs
    it is the KL of the whole trajectory (Eqs. 6 and 74).
    """
    return eta * delta_norm2 / (_KL_DENOMINATOR[convention] * sigma2)


@bound("neighbour-gap", source="kl_privacy Sec. 5")
@checked(
    relation=one_of(*RELATIONS),
    n=integer(ge=2),
    g_norm2=real(ge=0),
    gbar_norm2=real(ge=0),
    inner=real(),
)
def neighbour_gap(relation, n, g_norm2, gbar_norm2, inner):
    """Squared gradient gap of the mean loss between n records and a neighbouring set.

    From ||g||^2, ||gbar||^2 and <g, gbar>, where g is the gradient of the differing record and
    gbar the mean over the n records: `remove` ||g - gbar||^2 / (n - 1)^2 (g is one of the n),
    `add` ||gbar - g||^2 / (n + 1)^2 (it is not), `simple` ||g||^2 / n^2 (the text of Eq. 20).
    """
    if relation == "simple":
        return g_norm2 / n**2
    size = n - 1 if relation == "remove" else n + 1
    return (g_norm2 - 2 * inner + gbar_norm2) / size**2


def _layer_groups(init, d, m, o):
    """beta of the first layer, of those between, and of the last (Table 1)."""
    if init == "lecun":
        return 1 / d, 1 / m, 1 / m
    if init == "he":
        return 2 / d, 2 / m, 2 / m
    if init == "ntk":
        return 2 / m, 2 / m, 1 / o
    return 2 / (d + m), 1 / m, 2 / (m + o)


@checked(init=_INIT, d=_COUNT, m=_COUNT, L=_DEPTH, o=_COUNT)
def layer_variances(init, d, m, L, o):
    """Weight variances beta_1 .. beta_L (Eq. 5 and Table 1), a float array of shape (L,).

    Scalars only; m is the width of all L - 1 hidden layers.
    """
    first, between, last = _layer_groups(init, d, m, o)
    return np.array([first, *[between] * (L - 2), last])


def _inverse_variance_sum(init, d, m, L, o):
    """sum_l 1 / beta_l."""
    first, between, last = _layer_groups(init, d, m, o)
    return 1 / first + (L - 2) / between + 1 / last


def _initial_output_norm2(init, d, m, L, o):
    """E f_j(x)^2 of one output at initialisation: d beta_L prod_{i<L} (beta_i m / 2)."""
    first, between, last = _layer_groups(init, d, m, o)
    return d * last * (first * m / 2) * (between * m / 2) ** (L - 2)


@bound("gradient-norm-constant", source="kl_privacy Eq. 7")
@checked(init=_INIT, d=_COUNT, m=_COUNT, L=_DEPTH, o=_COUNT)
def gradient_norm_constant(init, d, m, L, o):
    """B = d o prod_{i<L} (beta_i m_i / 2) sum_l beta_L / beta_l.

    It is E ||df(x)/dW||_F^2 at initialisation for ||x||^2 = d (Lemma C.3). For the linearised
    network the squared gradient gap of two data sets with one record exchanged is at most
    4 B / n^2 in expectation (Theorem 4.1): shown for every o but 3, for which 4.14 B / n^2 is.
    """
    return o * _initial_output_norm2(init, d, m, L, o) * _inverse_variance_sum(init, d, m, L, o)


@bound("kl-linearized", source="kl_privacy Eq. 8")
@checked(B=real(ge=0), T=real(ge=0), n=_COUNT, sigma2=real(gt=0), convention=_CONVENTION)
def kl_linearized(B, T, n, sigma2, convention="exact"):
    """KL bound of the linearised network trained for time T (Cor. 4.2): B T / (n^2 sigma2).

    T = eta times the number of steps; the paper prints twice this value. The exact form is shown
    for any number of outputs but three, the printed one for any (see `gradient_norm_constant`).
    """
    return 4 * B / n**2 * T / (_KL_DENOMINATOR[convention] * sigma2)


def _distance(output_norm2, init, d, m, L, n):
    """max{1 / S, 1} n / sum_l 1/beta_l of a network with one output, S = `output_norm2`."""
    return np.maximum(1 / output_norm2, 1) * n / _inverse_variance_sum(init, d, m, L, 1)


def _exp_remainder(x):
    """e^x - 1 - x for x >= 0, without cancellation near 0."""
    series = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6))))
    return np.where(x < 1e-2, series, np.expm1(x) - x)


@bound("kl-drift-integral", source="kl_privacy Lemma 3.2")
@checked(
    T=real(ge=0),
    beta=real(gt=0),
    c=real(ge=0),
    n=_COUNT,
    gdiff0=real(ge=0),
    g0=real(ge=0),
    sigma2=real(gt=0),
    rank=_COUNT,
    convention=_CONVENTION,
)
def kl_drift_integral(T, beta, c, n, gdiff0, g0, sigma2, rank, convention="exact"):
    """Bound on the integral over [0, T] of the expected squared gradient gap (Lemma 3.2).

    For gradients with ||g(W) - g(W')|| < max(c, beta ||W - W'||) and one record of n exchanged:
    `gdiff0` = E ||gradient gap||^2 and `g0` = E ||grad L||^2 at initialisation, `rank` = dimension
    of the span of all gradients. Divide by 4 sigma2 for the KL. For a removed record n is n - 1.
    Returns inf where the exponential overflows.
    """
    factor = _DRIFT_FACTOR[convention]
    with np.errstate(over="ignore", invalid="ignore"):
        beta2, c2 = np.square(np.asarray(beta, float)), np.square(np.asarray(c, float))
        rate = 2 + beta2
        moved2 = _exp_remainder(rate * T) / rate / rate * (g0 + 2 * sigma2 * rank + c2)
        total = 2 * T * gdiff0 + factor * (beta2 * moved2 + c2 * T) / n**2
    # Every term is non-negative, so a nan can only stand for an overflow.
    return np.where(np.isnan(total), np.inf, total)[()]


@bound("lazy-distance", source="kl_privacy Eq. 9 without logs")
@checked(init=_INIT, d=_COUNT, m=_COUNT, L=_DEPTH, n=_COUNT)
def lazy_distance(init, d, m, L, n):
    """R as printed, one output: max{1 / (d beta_L prod_{i<L} beta_i m_i), 1} n / sum_l 1/beta_l.

    The squared distance from the initial weights to an interpolating solution, without logarithms
    and constants. See `lazy_distance_corrected` for the powers of 2 that it lacks.
    """
    return _distance(2.0 ** (L - 1) * _initial_output_norm2(init, d, m, L, 1), init, d, m, L, n)


@bound("lazy-distance-corrected", source="kl_privacy Eq. 9 without logs, our correction")
@checked(init=_INIT, d=_COUNT, m=_COUNT, L=_DEPTH, n=_COUNT)
def lazy_distance_corrected(init, d, m, L, n):
    """R with the halves of the ReLU: max{1/S, 1} n / sum_l 1/beta_l, S = E f(x)^2 at the start.

    R ~ (n + n S) / lambda_0. The paper's lambda_0 (Eq. 65) and its output size (Lemma D.1,
    Eq. 68) both carry prod beta_i m_i for prod beta_i m_i / 2, a factor 2^(L-1) too large.
    Where the first term of n + n S leads (LeCun, Xavier) the error is all in lambda_0, and R is
    2^(L-1) times the printed one; where the second leads (He, NTK) the two errors cancel, and
    the printed R stands.
    """
    return _distance(_initial_output_norm2(init, d, m, L, 1), init, d, m, L, n)


@bound("excess-risk-averaged-iterate", source="kl_privacy Lemma 6.1")
@checked(
    alpha=real(ge=0),
    R=real(ge=0),
    T=real(gt=0),
    sigma2=real(gt=0),
    rank=_COUNT,
    convention=_CONVENTION,
)
def excess_risk_averaged_iterate(alpha, R, T, sigma2, rank, convention="exact"):
    """Excess risk bound of the averaged iterate of T: alpha + R / (2T) + sigma2 rank.

    R = squared distance to an alpha-optimal solution; the paper prints sigma2 rank / 2.
    """
    return alpha + R / (2 * T) + _EXCESS_NOISE_FACTOR[convention] * sigma2 * rank


@bound("excess-risk-term", source="kl_privacy Eq. 73")
@checked(B=real(ge=0), R=real(ge=0), n=_COUNT, eps=real(gt=0))
def excess_risk_term(B, R, n, eps):
    """Excess risk beyond 1/n^2 under a KL budget eps, at the best T: sqrt(2 B R / (eps n)).

    The least value of R / (2T) + B T / (eps n). It is the same under both conventions: the noise
    that eps asks for is half the printed one (Cor. 4.2), its price twice (Lemma 6.1).
    """
    return np.sqrt(2 * B * R / (eps * n))


@bound("excess-risk-time", source="kl_privacy Cor. 6.4")
@checked(B=real(gt=0), R=real(ge=0), n=_COUNT, eps=real(gt=0))
def excess_risk_time(B, R, n, eps):
    """Training time that attains `excess_risk_term`: T = sqrt(eps n R / (2 B))."""
    return np.sqrt(eps * n * R / (2 * B))


def _symbols(variance, B, R, risk, R_corrected=None, risk_corrected=None) -> dict[str, str]:
    """A row of Table 1 in TeX; R and risk as printed, and corrected where we correct them.

    B for any o; R and the excess risk for o = 1, without logarithms and constants, the risk
    without its 1/n^2.
    """
    return {
        "variance": variance,
        "B": B,
        "R_printed": R,
        "R_corrected": R_corrected or R,
        "risk_printed": risk,
        "risk_corrected": risk_corrected or risk,
    }


TABLE_1 = {
    "lecun": _symbols(
        variance=r"\frac{1}{m_{l-1}}",
        B=r"\frac{o m (L - 1 + \frac{d}{m})}{2^{L - 1}}",
        R=r"\frac{n}{m (L - 1 + \frac{d}{m})}",
        R_corrected=r"\frac{2^{L - 1} n}{m (L - 1 + \frac{d}{m})}",
        risk=r"\sqrt{\frac{1}{2^{L} \varepsilon}}",
        risk_corrected=r"\sqrt{\frac{1}{\varepsilon}}",
    ),
    "he": _symbols(
        variance=r"\frac{2}{m_{l-1}}",
        B=r"o m (L - 1 + \frac{d}{m})",
        R=r"\frac{n}{m (L - 1 + \frac{d}{m})}",
        risk=r"\sqrt{\frac{1}{\varepsilon}}",
    ),
    "ntk": _symbols(
        variance=r"\frac{2}{m_l} (l < L), \frac{1}{o} (l = L)",
        B=r"d m (\frac{L - 1}{2} + \frac{o}{m})",
        R=r"\frac{n}{m (\frac{L - 1}{2} + \frac{1}{m})}",
        risk=r"\sqrt{\frac{d}{\varepsilon}}",
    ),
    "xavier": _symbols(
        variance=r"\frac{2}{m_{l-1} + m_l}",
        B=r"\frac{o d (L - 1 + \frac{d + o}{2 m})}{2^{L - 3} (1 + \frac{d}{m}) (1 + \frac{o}{m})}",
        R=r"\frac{n (1 + \frac{d}{m}) (1 + \frac{1}{m})}{d (L - 1 + \frac{d + 1}{2 m})}",
        R_corrected=(
            r"\frac{2^{L - 1} n (1 + \frac{d}{m}) (1 + \frac{1}{m})}{d (L - 1 + \frac{d + 1}{2 m})}"
        ),
        risk=r"\sqrt{\frac{1}{2^{L} \varepsilon}}",
        risk_corrected=r"\sqrt{\frac{1}{\varepsilon}}",
    ),
}
