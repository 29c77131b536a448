"""Private feature learning of single-index models: the report's settings, its rate, its privacy.

d inputs, p neurons, n records in each data set, degree q of the link. eps_n is taken from
n = d^(1 + 3 eps_n), the least n of Assumption 2. Scalars in, floats out.

Formulas raise `InputError` for what lies outside the declared domains.
"""

import math

from dpatlas.accounting.gaussian_dp import gaussian_delta, gaussian_mu
from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError

# Sensitivity of a mean of clipped gradients, in units of C / n. Where a record is added or removed
# the divisor n is public and stays.
SENSITIVITIES = {"add_remove": 1.0, "replace_one": 2.0}
_COUNT, _LEVEL = integer(ge=1), real(gt=0, lt=1)
_RELATION = one_of(*SENSITIVITIES)


@bound("gaussian-dp-mu", source="feature_learning exact Gaussian mechanism")
@checked(eps=real(ge=0), delta=_LEVEL)
def gaussian_dp_mu(eps, delta):
    """The largest mu whose Gaussian mechanism is (eps, delta)-private, rounded down."""
    return gaussian_mu(eps, delta)


@bound("feature-noise-assumption4", source="feature_learning Assumption 4")
@checked(d=integer(ge=2), n=_COUNT, q=_COUNT, eps_b=real())
def printed_first_layer_noise(d, n, q, eps_b=0.0):
    """sigma_W = sqrt(d^(1 + eps_B) / n) log(d)^(q + 3), which depends on neither eps nor delta.

    Section 3 of the report has any eps_B above 0 and below 3 eps_n - eps_p / 4; 0 is the limit.
    """
    return math.sqrt(d ** (1 + eps_b) / n) * math.log(d) ** (q + 3)


@bound("feature-printed-mu", source="feature_learning Algorithm 1, first layer; ours")
@checked(d=integer(ge=2), n=_COUNT, q=_COUNT, p=_COUNT, eps_b=real())
def printed_first_layer_mu(d, n, q, p, eps_b=0.0):
    """mu of the printed first layer's worst pair of neighbours: 2 sqrt(p) / sigma_W.

    Neurons are normalised after the step, whatever its clip, so where all other records are x = 0
    one record reverses every neuron: two matrices 2 sqrt(p) apart. Clips far below d^(-3 eps_n / 2)
    excepted, whose steps are short.
    """
    return 2 * math.sqrt(p) / printed_first_layer_noise(d, n, q, eps_b)


@bound("feature-printed-width", source="feature_learning Algorithm 1, first layer; ours")
@checked(d=integer(ge=2), n=_COUNT, q=_COUNT, eps=real(ge=0), delta=_LEVEL, eps_b=real())
def printed_first_layer_width(d, n, q, eps, delta, eps_b=0.0):
    """The width above which the printed first layer is not (eps, delta)-private."""
    return (printed_first_layer_noise(d, n, q, eps_b) * gaussian_mu(eps, delta) / 2) ** 2


@bound("feature-noise-norm", source="feature_learning Assumption 4; ours")
@checked(d=integer(ge=2), exponent=real(gt=0), q=_COUNT, eps_b=real())
def printed_noise_norm(d, exponent, q, eps_b=0.0):
    """sigma_W sqrt(d) at n = d^(1 + 3 eps_n): the norm of a neuron's noise; its signal has norm 1.

    exponent: eps_n. The norm is d^((1 + eps_B - 3 eps_n) / 2) log(d)^(q + 3), which grows with d
    unless 3 eps_n > 1 + eps_B.
    """
    return d ** ((1 + eps_b - 3 * exponent) / 2) * math.log(d) ** (q + 3)


@bound("feature-printed-least-risk", source="feature_learning Theorem 1, Assumption 4; ours")
@checked(d=integer(ge=2), n=_COUNT, p=_COUNT, q=_COUNT, eps_b=real())
def printed_least_risk(d, n, p, q, eps_b=0.0):
    """A risk that no network on the printed first layer falls below, whatever its second layer.

    As a share of the variance of the labels, with probability at least 1 - 2 exp(-log(d)^2 / 2).
    The network sees x through W' x. With R^2 = mu' P mu for the projection P onto the columns of W,
    the best predictor has the risk sum_k k! alpha*_k^2 (1 - R^(2 k)), at least 1 - R^2 of the
    variance. W is a matrix of unit columns plus sigma_W G with an independent Gaussian G, so R is
    at most (sqrt(p) + sigma_W (sqrt(p) + t)) / (sigma_W (sqrt(d - p - 1) - sqrt(p) - t)) with
    t = log d, even if every column is mu before the noise. 0 where this exceeds 1.
    """
    sigma, slack, width = printed_first_layer_noise(d, n, q, eps_b), math.log(d), math.sqrt(p)
    across = math.sqrt(max(d - p - 1, 0)) - width - slack
    along = width + sigma * (width + slack)
    return 0.0 if along >= sigma * across else 1 - (along / (sigma * across)) ** 2


@bound("feature-layer2-mu", source="feature_learning Assumption 4, second layer")
@checked(eps=real(gt=0), delta=_LEVEL, relation=_RELATION)
def second_layer_mu(eps, delta, relation="add_remove"):
    """mu of all T noisy steps at the printed sigma_a = sqrt(eta_a T) sqrt(8 log(1/delta)) / eps.

    A step adds noise sqrt(eta_a) (C_a / n) sigma_a to eta_a times a mean whose sensitivity is
    C_a / n (add_remove, as argued) or 2 C_a / n (replace_one); eta_a, C_a, n and T cancel.
    """
    return SENSITIVITIES[relation] * eps / math.sqrt(-8 * math.log(delta))


@bound("feature-layer2-delta", source="feature_learning Assumption 4, second layer")
@checked(eps=real(gt=0), delta=_LEVEL, relation=_RELATION)
def second_layer_delta(eps, delta, relation="add_remove"):
    """delta that the printed second layer has at eps; private as claimed if at most `delta`."""
    return gaussian_delta(second_layer_mu(eps, delta, relation), eps)


@bound("feature-eps-n", source="feature_learning Assumption 2")
@checked(n=_COUNT, d=integer(ge=2))
def eps_n(n, d):
    """eps_n with n = d^(1 + 3 eps_n).

    Raises InputError for n <= d, where no eps_n > 0 solves this.
    """
    if n <= d:
        raise InputError("n", n, f"a whole number > d = {d}")
    return (math.log(n) / math.log(d) - 1) / 3


@bound("feature-first-rate", source="feature_learning Assumption 4")
@checked(n=_COUNT, d=integer(ge=2), p=_COUNT)
def first_layer_rate(n, d, p):
    """eta_W = d^(3 eps_n / 2) sqrt(p). Raises InputError for n <= d."""
    return d ** (1.5 * eps_n(n, d)) * math.sqrt(p)


@bound("feature-penalty", source="feature_learning Assumption 4")
@checked(n=_COUNT, d=integer(ge=2), p=_COUNT)
def penalty(n, d, p):
    """lambda = p / d^(2 eps_n). Raises InputError for n <= d."""
    return p / d ** (2 * eps_n(n, d))


@bound("feature-second-rate", source="feature_learning Assumption 4")
@checked(n=_COUNT, d=integer(ge=2), p=_COUNT)
def second_layer_rate(n, d, p):
    """eta_a = d^(eps_n) log(d)^2 / p. Raises InputError for n <= d."""
    return d ** eps_n(n, d) * math.log(d) ** 2 / p


@bound("feature-risk-rate", source="feature_learning Theorem 1")
@checked(n=_COUNT, d=integer(ge=2), eps=real(gt=0), delta=_LEVEL)
def risk_rate(n, d, eps, delta):
    """d^(1 + eps_n) / n log(1.25 / delta) / eps^2: the second term of the risk, up to a constant.

    Raises InputError for n <= d.
    """
    return d ** (1 + eps_n(n, d)) / n * math.log(1.25 / delta) / eps**2


@bound("feature-largest-epsilon", source="feature_learning Assumption 3")
@checked(delta=_LEVEL)
def largest_epsilon(delta):
    """8 log(1 / delta), the end of the report's range of eps; exact accounting has no such end."""
    return -8 * math.log(delta)
