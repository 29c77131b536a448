"""How epsilons are or were computed from a composed event: today's accountants and older habits.

They explain printed numbers. Some are valid and merely loose (the RDP conversion of 2017, short
lists of orders), others are not bounds at all (the central limit theorem, formulas used outside of
their range): what is valid for a claim is in `dpatlas.epsilon.valid`.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dpatlas.accounting.accountants import RDP_ORDERS, epsilon_of_curve, rdp_curve
from dpatlas.accounting.gaussian_dp import LARGEST_MU, gaussian_epsilon
from dpatlas.accounting.guarantees import ACCOUNTANTS
from dpatlas.accounting.samplers import Poisson
from dpatlas.epsilon.claim import NEAR
from dpatlas.epsilon.valid import Event, cached_pld_epsilon

# Lists of orders that libraries and tutorials print, of which some end at 63.
SHORT = (*(1 + tenth / 10 for tenth in range(1, 100)), *map(float, range(12, 64)))
SPARSE = (1.25, 1.5, 1.75, 2, 2.25, 2.5, 3, 3.5, 4, 4.5, *range(5, 64), 128, 256, 512)
# Above 512 an order costs more time than all below it, and matters for epsilons below 0.05 only.
ORDERS = np.array(sorted(map(float, {*(each for each in RDP_ORDERS if each <= 512), *SPARSE})))
# Moments of whole orders up to 32, as the moments accountant of 2016 had them, come last.
LISTS = {
    "orders 1.1 to 63": SHORT,
    "a sparse list of orders": SPARSE,
    "moments 1 to 32": tuple(range(2, 34)),
}
TODAY, OF_2017 = "RDP", "RDP, conversion of 2017"
PLD, EXACT = "PLD", "exact Gaussian"
CLT = "central limit theorem (GDP)"
CLASSICAL = "classical Gaussian formula, in the square root of the steps"
# PLD takes most of the time, so it is computed where its epsilon may be the number. It was found
# between these shares of RDP's, and, with enough noise, of the limit theorem's. Below 1 RDP's is
# mostly what delta costs it, and says little.
RDP_SHARE, LEAST_RDP = 0.25, 1.0
LIMIT_SHARES = (0.7, 1.6)
ENOUGH_NOISE, LEAST_TRIED = 0.5, 0.3
# Of more steps PLD takes seconds each time.
MOST_BY_PLD = 100_000
# Where a short list gives the same as the long one, it explains nothing.
SAME = 1e-3


# A convention, and the epsilon that it gives.
Computed = tuple[str, float]


def computed(composed: Event, delta: float, wanted: float) -> Iterator[Computed]:
    """Epsilon by every convention that applies to the event, PLD only where it may be `wanted`."""
    least, most = _range_of_pld(composed, delta)
    if _covered(composed, "rdp"):
        for name, epsilon in _by_renyi(composed, delta):
            if name == TODAY:
                most = min(most, epsilon)
                if epsilon > LEAST_RDP:
                    least = max(least, RDP_SHARE * epsilon)
            yield name, epsilon
    yield from _by_formula(composed, delta)
    sampled = any(isinstance(mechanism.sampler, Poisson) for mechanism in composed.mechanisms)
    possible = least <= wanted * (1 + NEAR) and wanted * (1 - NEAR) <= most
    if possible and sampled and _covered(composed, "pld"):
        yield PLD, by_convention(PLD, composed, delta)


def solvable(composed: Event) -> list[str]:
    """The conventions by which a setting is solved for: those that are no formula for a limit."""
    renyi = [TODAY, OF_2017] if _covered(composed, "rdp") else []
    if all(mechanism.is_gaussian for mechanism in composed.mechanisms):
        return [*renyi, EXACT]
    return [*renyi, PLD] if _covered(composed, "pld") else renyi


def by_convention(name: str, composed: Event, delta: float) -> float:
    """Epsilon by one of `solvable`; infinite where PLD would take minutes."""
    if name == PLD:
        if sum(each.convolutions for each in composed.mechanisms) > MOST_BY_PLD:
            return math.inf
        return cached_pld_epsilon(composed.mechanisms, delta, composed.accounted)
    if name == EXACT:
        return limit_epsilon(composed, delta)
    orders, curve = _usable_curve(composed)
    convert = _today if name == TODAY else _of_2017
    return convert(orders, curve, delta) if len(orders) else math.inf


def limit_epsilon(composed: Event, delta: float) -> float:
    """Epsilon of the limit theorem, exact without sampling; infinite beyond doubles."""
    mu = _limit_parameter(composed)
    return gaussian_epsilon(mu, delta) if mu < LARGEST_MU else math.inf


def _range_of_pld(composed: Event, delta: float) -> tuple[float, float]:
    """Where PLD's epsilon is expected: near the limit theorem's, unless there is little noise."""
    if min(mechanism.noise_multiplier for mechanism in composed.mechanisms) < ENOUGH_NOISE:
        added = replace(composed, accounted="add_remove")
        if not _covered(added, "rdp"):
            return 0.0, math.inf
        # Replacing a record costs no less than removing it.
        least = by_convention(TODAY, added, delta)
        return RDP_SHARE * least if least < math.inf else 0.0, math.inf
    limit = limit_epsilon(composed, delta)
    # The theorem says nothing of the largest losses, which decide where few losses are summed.
    return LIMIT_SHARES[0] * limit, max(LIMIT_SHARES[1] * limit, LEAST_TRIED)


def _usable_curve(composed: Event) -> tuple[np.ndarray, np.ndarray]:
    curve = rdp_curve(composed.mechanisms, composed.accounted, ORDERS)
    usable = np.isfinite(curve)
    return ORDERS[usable], curve[usable]


def _by_renyi(composed: Event, delta: float) -> Iterator[Computed]:
    orders, curve = _usable_curve(composed)
    if not len(orders):
        return
    for name, convert in ((TODAY, _today), (OF_2017, _of_2017)):
        full = convert(orders, curve, delta)
        yield name, full
        for words, short in LISTS.items():
            kept = np.isin(orders, short)
            if kept.any():
                cut = convert(orders[kept], curve[kept], delta)
                if abs(cut - full) > SAME * full:
                    yield f"{name}, {words}", cut


def _today(orders: np.ndarray, curve: np.ndarray, delta: float) -> float:
    return epsilon_of_curve(orders, curve, delta)[0]


def _of_2017(orders: np.ndarray, curve: np.ndarray, delta: float) -> float:
    """Mironov 2017, Proposition 3."""
    return float(np.min(curve - math.log(delta) / (orders - 1)))


def _by_formula(composed: Event, delta: float) -> Iterator[Computed]:
    gaussian = all(mechanism.is_gaussian for mechanism in composed.mechanisms)
    if (limit := limit_epsilon(composed, delta)) < math.inf:
        yield EXACT if gaussian else CLT, limit
    if gaussian:
        widest = _limit_parameter(composed) * math.sqrt(2 * math.log(1.25 / delta))
        yield CLASSICAL, widest


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


def _covered(composed: Event, accountant: str) -> bool:
    return all(
        mechanism.is_gaussian
        or accountant in ACCOUNTANTS.get((mechanism.sampler.name, composed.accounted), ())
        for mechanism in composed.mechanisms
    )
