"""How epsilons are or were computed from a composed event: today's accountants and older habits.

They explain printed numbers. Some are valid and merely loose (the RDP conversion of 2017, short
lists of orders), others are not bounds at all (the central limit theorem, formulas used outside of
their range): what is valid for a claim is in `dpatlas.epsilon.valid`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpatlas.epsilon.valid import Event
from dpatlas.privacy.accountants import RDP_ORDERS, epsilon_of_curve, pld_epsilon, rdp_curve
from dpatlas.privacy.accounting import ACCOUNTANTS
from dpatlas.privacy.gaussian_dp import LARGEST_MU, gaussian_epsilon

# Lists of orders that libraries and tutorials print, of which some end at 63.
SHORT = (*(1 + tenth / 10 for tenth in range(1, 100)), *map(float, range(12, 64)))
SPARSE = (1.25, 1.5, 1.75, 2, 2.25, 2.5, 3, 3.5, 4, 4.5, *range(5, 64), 128, 256, 512)
# Moments of whole orders up to 32, as the moments accountant of 2016 had them.
MOMENTS = tuple(range(2, 34))
ORDERS = np.array(sorted({*map(float, RDP_ORDERS), *SHORT, *map(float, SPARSE)}))
LISTS = {
    "orders 1.1 to 63": SHORT,
    "a sparse list of orders": SPARSE,
    "moments 1 to 32": MOMENTS,
}
TODAY, OF_2017 = "RDP", "RDP, conversion of 2017"
PLD, EXACT = "PLD", "exact Gaussian"
CLT = "central limit theorem (GDP)"
CLASSICAL = "classical Gaussian formula, in the square root of the steps"
ASYMPTOTIC = "q sqrt(T log(1/delta)) / noise"
# PLD is computed where its epsilon may be the number: RDP exceeds it by no more than this factor.
PLD_SHARE = 0.25
# Where a short list gives the same as the long one, it explains nothing.
SAME = 1e-3


@dataclass(frozen=True)
class Computed:
    """An epsilon and the convention that gives it."""

    convention: str
    epsilon: float


def computed(composed: Event, delta: float, wanted: float) -> Iterator[Computed]:
    """Epsilon by every convention that applies to the event, the slow ones only near `wanted`."""
    least, most = 0.0, math.inf
    if _has_rdp(composed):
        for each in _by_renyi(composed, delta):
            if each.convention == TODAY:
                most, least = each.epsilon, PLD_SHARE * each.epsilon
            yield each
    elif (mu := _limit_parameter(composed)) < LARGEST_MU:
        # Replaced records under Poisson: the limit theorem is near enough to leave numbers out.
        limit = gaussian_epsilon(mu, delta)
        least, most = PLD_SHARE * limit, limit / PLD_SHARE
    yield from _by_formula(composed, delta)
    gaussian = all(mechanism.is_gaussian for mechanism in composed.mechanisms)
    if not gaussian and least <= wanted * 1.1 and wanted <= most * 1.1 and _has_pld(composed):
        yield Computed(PLD, pld_epsilon(composed.mechanisms, delta, composed.accounted))


def _by_renyi(composed: Event, delta: float) -> Iterator[Computed]:
    curve = rdp_curve(composed.mechanisms, composed.accounted, ORDERS)
    usable = np.isfinite(curve)
    if not usable.any():
        return
    orders, curve = ORDERS[usable], curve[usable]
    for name, convert in ((TODAY, _today), (OF_2017, _of_2017)):
        full = convert(orders, curve, delta)
        yield Computed(name, full)
        for words, short in LISTS.items():
            kept = np.isin(orders, short)
            if kept.any():
                cut = convert(orders[kept], curve[kept], delta)
                if abs(cut - full) > SAME * full:
                    yield Computed(f"{name}, {words}", cut)


def _today(orders: np.ndarray, curve: np.ndarray, delta: float) -> float:
    return epsilon_of_curve(orders, curve, delta)[0]


def _of_2017(orders: np.ndarray, curve: np.ndarray, delta: float) -> float:
    """Mironov 2017, Proposition 3."""
    return float(np.min(curve - math.log(delta) / (orders - 1)))


def _by_formula(composed: Event, delta: float) -> Iterator[Computed]:
    gaussian = all(mechanism.is_gaussian for mechanism in composed.mechanisms)
    mu = _limit_parameter(composed)
    if mu < LARGEST_MU:
        yield Computed(EXACT if gaussian else CLT, gaussian_epsilon(mu, delta))
    if gaussian:
        yield Computed(CLASSICAL, mu * math.sqrt(2 * math.log(1.25 / delta)))
    elif len(composed.mechanisms) == 1 and composed.accounted == "add_remove":
        (one,) = composed.mechanisms
        spread = one.sampler.sample_rate * math.sqrt(one.count) / one.noise_multiplier
        yield Computed(ASYMPTOTIC, spread * math.sqrt(-math.log(delta)))


def _limit_parameter(composed: Event) -> float:
    """mu of the Gaussian limit (Bu, Dong, Long and Su 2020, for Poisson samples).

    Under replace_one with the two opposite means, whose distance is 2 at the rate q: the variance
    of the loss of a small step, by the same argument.
    """
    total = 0.0
    for mechanism in composed.mechanisms:
        noise, rate = mechanism.noise_multiplier, mechanism.sampler.sample_rate
        replaced = composed.accounted == "replace_one"
        if mechanism.is_gaussian:
            total += mechanism.count * ((2 if replaced else 1) / noise) ** 2
            continue
        inverse = 1 / noise**2
        if inverse > 600:
            return math.inf
        # chi^2 of N(1, noise^2) from N(0, noise^2); the cross term of the opposite means.
        squared = math.expm1(inverse)
        if replaced:
            squared = 2 * (squared - math.expm1(-inverse))
        total += mechanism.count * rate**2 * squared
    return math.sqrt(total)


def _has_rdp(composed: Event) -> bool:
    return all(
        mechanism.is_gaussian
        or "rdp" in ACCOUNTANTS.get((mechanism.sampler.name, composed.accounted), ())
        for mechanism in composed.mechanisms
    )


def _has_pld(composed: Event) -> bool:
    return all(
        mechanism.is_gaussian
        or "pld" in ACCOUNTANTS.get((mechanism.sampler.name, composed.accounted), ())
        for mechanism in composed.mechanisms
    )
