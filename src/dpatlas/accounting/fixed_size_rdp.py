"""Renyi divergences of Gaussian noise on a sample without replacement, under replace-one.

Wang, Balle and Kasiviswanathan 2019, Theorem 27. The values are those of the dp-accounting package
to the last bit, in a small part of its time: the theorem's finite differences are the same at all
orders and sampling rates, and the package computes them anew at every order.

Differences cancel until rounding is most of what is left of them, so another exp or log1p, or
another order of operations, would change a divergence by percents: they are scalars on purpose.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import gammaln

# Above this order the terms are bounded without finite differences.
LARGEST_EXACT_ORDER = 256
LOG_2, LOG_4 = float(np.log(2)), float(np.log(4))
# A finite difference: log of its magnitude, and whether it is positive.
Difference = tuple[float, bool]


def fixed_size_rdp(q: float, sigma: float, orders: Sequence[float]) -> np.ndarray:
    """Renyi divergence at each order > 1 of one release on a share 0 < q <= 1 of all records.

    sigma: standard deviation of the noise over the distance by which replacing one record can move
    the sum. Raises ArithmeticError or ValueError, as the package does, where doubles do not resolve
    1 / sigma^2 or its exponential: below 1e-161 and above 1e8.
    """
    if q == 1:
        return np.array([order / (2 * sigma**2) for order in orders])
    moments = _moments(sigma)
    divergences = []
    for order in orders:
        low, high = math.floor(order), math.ceil(order)
        moment = moments.log_moment(q, low)
        if low != high:
            # The log moment is convex in the order.
            share = order - low
            moment = (1 - share) * moment + share * moments.log_moment(q, high)
        divergences.append(moment / (order - 1))
    return np.array(divergences)


class _Moments:
    """Moments of the likelihood ratio for one sigma. What all orders share grows as it is used."""

    def __init__(self, sigma: float):
        self._sigma = sigma
        # Finite differences of order 0, 1, ... of the sequence 1, e^cgf(0), e^cgf(1), ...: those
        # that end at its last value so far, and the log magnitudes of those at its first value.
        self._last: list[Difference] = [(0.0, True)]
        self._first: list[float] = [0.0]
        # Logs of the theorem's terms 2, 3, ... without sampling rate and binomial coefficient.
        gaussian = 2.0 / (2.0 * sigma**2)
        exact = LOG_4 + (gaussian + math.log1p(-np.exp(-gaussian)))
        self._terms = [min(exact, gaussian + LOG_2)]

    def log_moment(self, q: float, order: int) -> float:
        """Upper bound on the log of the moment of a whole order: order - 1 times the divergence."""
        if order == 1:
            return 0.0
        index = np.arange(2, order + 1)
        powers = index * np.log(q)
        choices = gammaln(order + 1) - gammaln(index + 1) - gammaln(order - index + 1)
        if order <= LARGEST_EXACT_ORDER:
            terms = np.array(self._terms_to(order)) + (powers + choices)
        else:
            terms = LOG_2 + self._cgf(index - 1) + powers + choices
            terms[0] = self._terms[0] + (powers[0] + choices[0])
        return functools.reduce(_log_add, terms.tolist(), 0.0)

    def _cgf(self, x: Any) -> Any:
        """x times the divergence of the Gaussian mechanism at order x + 1."""
        return x * (x + 1) / (2.0 * self._sigma**2)

    def _terms_to(self, order: int) -> list[float]:
        for index in range(len(self._terms) + 2, order + 1):
            below, above = 2 * (index // 2), 2 * ((index + 1) // 2)
            while len(self._first) <= above:
                self._lengthen()
            exact = LOG_4 + 0.5 * (self._first[below] + self._first[above])
            self._terms.append(float(np.minimum(exact, LOG_2 + self._cgf(index - 1))))
        return self._terms[: order - 1]

    def _lengthen(self) -> None:
        """Add the next value of the sequence, with which one more difference is known."""
        last = [(self._cgf(len(self._last) - 1.0), True)]
        for earlier in self._last:
            last.append(_difference(last[-1], earlier))
        self._last = last
        self._first.append(last[-1][0])


# A calibration tries a few dozen noise multipliers, each at many orders.
_moments = functools.lru_cache(maxsize=128)(_Moments)


def _difference(later: Difference, earlier: Difference) -> Difference:
    (log_later, positive), (log_earlier, earlier_positive) = later, earlier
    if positive != earlier_positive:
        return _log_add(log_earlier, log_later), positive
    if log_later > log_earlier:
        return log_later + math.log1p(-np.exp(log_earlier - log_later)), positive
    if log_later < log_earlier:
        return log_earlier + np.log1p(-np.exp(log_later - log_earlier)), not positive
    return -math.inf, positive


def _log_add(log_x: float, log_y: float) -> float:
    """log(x + y)."""
    low, high = min(log_x, log_y), max(log_x, log_y)
    return high if low == -math.inf else math.log1p(math.exp(low - high)) + high
