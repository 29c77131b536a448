"""Certificates that pay for every setting that could have been chosen, however it was chosen.

A setting is everything except the records on which a prior depends: kind of prior, network, scaling
of its inputs, hyperparameters of DP-SGD, standard deviation tau, number of the look (`register`)
and of the run in it. Every setting i of the universe below has a weight w_i that is fixed here, and
the weights sum to at most 1. The weight replaces the declared grid of Eq. 97 with its K1 and K2:

    kl^-1(R_hat, (KL + kappa_i + log(2 sqrt(n) / (delta - delta_mc - beta)) + log(1 / w_i)) / n),

kappa_i the prior's max-information at level beta w_i, R_hat an upper limit at level delta_mc w_i.

All certificates of the universe hold together with probability at least 1 - delta. For setting i,
a posterior breaks the inequality with probability at most (delta - delta_mc - beta) w_i e^-kappa_i
if the prior ignores the records, so at most e^kappa_i times that plus beta w_i for the prior that
saw them; and a count of errors misses its limit with probability at most delta_mc w_i, given
records and posterior. So setting i fails with probability at most delta w_i, and the sum over all
settings is at most delta. The choice of a setting may depend on the records in any way. The
objective of the posterior costs nothing, since the inequality holds for all posteriors at once; but
errors are counted for one posterior of a setting, so another training is another look. The data
set, its size and its classes are not part of a setting: they determine which risk is bounded and
have to be fixed before any look.

The universe, and why its weights sum to at most 1 (each factor does, given those before it):

    kinds 1/3 each; models, readings of tau, samplers, scaled inputs or not 1/2 each;
    whole numbers v (epochs, hidden layers, looks, runs): 1 / (v (v + 1)),
        which telescopes to 1;
    reals (zeta, lr, tau, widths, means, deviations): decimals of at most `DIGITS` significant
        digits, see `decimal_weight`;
    batches of m records: of the whole number T = floor(n / m) half goes to the largest such m, and
        half to all of them equally.

sigma is 1, since (zeta, sigma, lr) and (zeta / sigma, 1, lr sigma) are one mechanism. A setting
outside the universe has no weight, and its certificate is refused. These are the simplest families
that contain the settings that papers print. They must not be changed: a change after a certificate
was seen would be a choice for which no certificate pays.

Formulas work elementwise and raise `InputError` for what lies outside the declared domains.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, get_args

import numpy as np

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.certificates import (
    ESTIMATE,
    EXPONENT,
    TAU_READINGS,
    certificate_exponent,
    kl_inverse,
    monte_carlo_risk,
)

DIGITS = 4
PriorKind = Literal["independent", "dp-sgd", "noise-only"]
Model = Literal["mlp", "bayes-cnn9"]
Sampler = Literal["shuffled", "cyclic"]
KINDS: tuple[PriorKind, ...] = get_args(PriorKind)
MODELS: tuple[Model, ...] = get_args(Model)
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
# For smaller weights the level beta w would come near the smallest positive float.
LEAST_WEIGHT = 1e-250
_BUDGET = {name: EXPONENT[name] for name in ("kl", "kappa", "n", "delta", "delta_mc", "beta")}


@bound("universe-whole-weight", source="max_information Eq. 97, weights for K1 K2")
@checked(value=integer(ge=1))
def whole_weight(value):
    """Weight 1 / (v (v + 1)) of the whole number v; over all of them the sum is 1."""
    value = np.asarray(value, float)
    return (1 / (value * (value + 1)))[()]


@bound("universe-decimal-weight", source="max_information Eq. 97, weights for K1 K2")
@checked(value=real(gt=0))
def decimal_weight(value):
    """Weight of the positive decimal with s significant digits and first digit at 10^k.

    2^-s / c_s (2/3) / ((|k| + 1) (|k| + 2)), where c_s is the number of such decimals for each k: 9
    for s = 1 and 81 10^(s - 2) for s > 1. The sum over k is 2/3 (1/2 + 2 (1/2)) = 1, since the
    terms of k > 0 telescope to 1/2; over s <= DIGITS: 1 - 2^-DIGITS. 0.02 costs log(1/w) = 5.8
    nats.

    Raises InputError for more than `DIGITS` significant digits, in the shortest decimal that
    reads back as the same float.
    """
    return np.vectorize(_decimal_weight, otypes=[float])(value)[()]


def _decimal_weight(value):
    written = Decimal(repr(float(value))).normalize()
    digits, power = len(written.as_tuple().digits), abs(written.adjusted())
    if digits > DIGITS:
        raise InputError("value", f"{value!r}", f"at most {DIGITS} significant digits")
    decimals = 9 if digits == 1 else 81 * 10 ** (digits - 2)
    return 2.0**-digits / decimals * (2 / 3) / ((power + 1) * (power + 2))


@bound("certificate-universe", source="max_information Eq. 97, weights for K1 K2")
@checked(**_BUDGET | ESTIMATE, weight=real(gt=0, le=1))
def certificate_universe(
    risk, draws, kl, kappa, n, weight, delta, delta_mc, beta, interval="clopper-pearson"
):
    """Upper bound on a posterior's risk that pays log(1 / weight) for its setting.

    risk: average loss over `draws` draws, whose upper limit is at level delta_mc weight. kappa: the
    prior's max-information at level beta weight, nats, by a form whose proof covers its epochs.
    weight: of the setting in a family that sums to at most 1 and was fixed before any look, as
    `setting_weight`. The certificates of all settings hold together with probability 1 - delta.
    """
    limit = monte_carlo_risk(risk, draws, delta_mc * np.asarray(weight, float), interval)
    paid = kappa - np.log(weight)
    return kl_inverse(limit, certificate_exponent(kl, paid, n, 1, 1, delta, delta_mc, beta))


@checked(
    kind=one_of(*KINDS),
    model=one_of(*MODELS),
    tau_is=one_of(*TAU_READINGS),
    n=integer(ge=1),
    look=integer(ge=1),
    run=integer(ge=0),
)
def setting_weight(
    *,
    kind: str,
    model: str,
    widths: Sequence[int],
    normalise: Mapping[str, Sequence[float]] | None,
    tau: float,
    tau_is: str,
    n: int,
    look: int,
    run: int,
    zeta: float | None = None,
    sigma: float | None = None,
    m: int | None = None,
    E: int | None = None,
    lr: float | None = None,
    sampler: str = SAMPLERS[0],
) -> float:
    """Weight of one setting of a prior on n records (Eq. 97), as the module's docstring defines it.

    widths: of the hidden layers of an mlp, empty for another model. normalise: `means` and
    `deviations` of channels, or None. zeta, sigma, m, E, lr, sampler: of a prior trained by DP-SGD
    or by its noise alone. Raises InputError for a setting outside the universe and names the key.
    """
    weight = 1 / (len(KINDS) * len(MODELS) * len(TAU_READINGS) * 2)
    weight *= _decimal("grid.taus", tau) * whole_weight(look) * whole_weight(run + 1)
    if model == "mlp":
        if not widths:
            raise InputError("options.widths", "nothing", "a width for every hidden layer")
        weight *= whole_weight(len(widths)) * _decimals("options.widths", widths)
    if normalise is not None:
        weight *= _decimals("normalise.means", normalise["means"])
        weight *= _decimals("normalise.deviations", normalise["deviations"])
    if kind != "independent":
        one_of(*SAMPLERS).check("priors.sampler", sampler)
        weight *= _batch_weight(n, m) * whole_weight(E) / len(SAMPLERS)
        weight *= _decimal("grid.zetas", zeta) * _decimal("grid.lrs", lr)
        if sigma != 1:
            raise InputError("grid.sigma", sigma, "1: give zeta / sigma and lr sigma instead")
    if weight < LEAST_WEIGHT:
        found = f"a setting that costs more than {-math.log(LEAST_WEIGHT):.0f} nats"
        raise InputError("options.widths", found, "fewer or rounder numbers")
    return float(weight)


def _batch_weight(n: int, m: int | None) -> float:
    T = n // m if m else 0
    if not m or not T:
        raise InputError("grid.m", m, f"a whole number >= 1 and <= n = {n}")
    largest = n // T
    same_T = largest - n // (T + 1)
    return whole_weight(T) * ((m == largest) + 1 / same_T) / 2


def _decimals(key: str, values: Sequence[float]) -> float:
    return math.prod(_decimal(key, value) for value in values)


def _decimal(key: str, value: Any) -> float:
    """`decimal_weight` of a setting; an InputError names its key in the config."""
    try:
        return float(decimal_weight(value))
    except InputError as error:
        raise InputError(key, error.found, f"{error.allowed}, so that it has a weight") from None
