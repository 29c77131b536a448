"""Private feature learning of single-index models: the report's settings, its rate, its privacy.

d inputs, p neurons, n records in each data set, degree q of the link. eps_n is taken from
n = d^(1 + 3 eps_n), the least n of Assumption 2. Scalars in, floats out.

Formulas raise `InputError` for what lies outside the declared domains.
"""

import math

from dpatlas.core.formulas import bound
from dpatlas.core.guard import checked, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.privacy.gaussian_dp import gaussian_delta, gaussian_mu

# Sensitivity of a mean of clipped gradients, in units of C / n.
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

    eps_B is not defined in the report; 0 is the smallest noise that its other exponents allow.
    """
    return math.sqrt(d ** (1 + eps_b) / n) * math.log(d) ** (q + 3)


@bound("feature-printed-mu", source="feature_learning Algorithm 1, first layer; ours")
@checked(d=integer(ge=2), n=_COUNT, q=_COUNT, p=_COUNT, eps_b=real())
def printed_first_layer_mu(d, n, q, p, eps_b=0.0):
    """mu of the printed first layer's worst pair of neighbours: 2 sqrt(p) / sigma_W.

    Its step is not clipped, so one record with a large label reverses every normalised neuron.
    """
    return 2 * math.sqrt(p) / printed_first_layer_noise(d, n, q, eps_b)


@bound("feature-printed-width", source="feature_learning Algorithm 1, first layer; ours")
@checked(d=integer(ge=2), n=_COUNT, q=_COUNT, eps=real(ge=0), delta=_LEVEL, eps_b=real())
def printed_first_layer_width(d, n, q, eps, delta, eps_b=0.0):
    """The width above which the printed first layer is not (eps, delta)-private."""
    return (printed_first_layer_noise(d, n, q, eps_b) * gaussian_mu(eps, delta) / 2) ** 2


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
