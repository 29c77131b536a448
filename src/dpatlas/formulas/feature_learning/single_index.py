"""Single-index targets y = s(<x, mu>) on Gaussian inputs: the link s and its Hermite expansion.

With x ~ N(0, I_d) and a unit vector mu, u = <x, mu> is N(0, 1), and the expansion of s in the
probabilists' Hermite polynomials He_k decides what is learned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial import hermite_e, polynomial
from scipy.special import factorial

from dpatlas.errors import InputError

# A mean below this share of the standard deviation counts as rounding error.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Link:
    """A polynomial s with zero mean, scaled to unit variance under N(0, 1).

    coefficients: of 1, u, u^2, ... before it is scaled. Raises InputError for a mean other than
    zero, which Assumption 1 excludes (alpha*_0 = 0), and for a constant.
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse a polynomial of zero variance or of non-zero mean."""
        if not np.isfinite(self.coefficients).all():
            raise InputError("polynomial", list(self.coefficients), "numbers")
        # numpy refuses an empty polynomial; the zero polynomial is refused below.
        series = hermite_e.poly2herme(self.coefficients or (0.0,))
        deviation = _deviation(series)
        if not np.isfinite(deviation):
            raise InputError("polynomial", list(self.coefficients), "numbers of moderate size")
        if deviation == 0:
            raise InputError("polynomial", list(self.coefficients), "one that is not constant")
        if abs(series[0]) > _ROUNDING * deviation:
            found = f"{list(self.coefficients)}, whose mean under N(0, 1) is {series[0]:g}"
            allowed = "one of mean 0: subtract that from its first coefficient"
            raise InputError("polynomial", found, allowed)

    @cached_property
    def scaled(self) -> np.ndarray:
        """Coefficients of 1, u, u^2, ... at unit variance, (degree + 1,)."""
        trimmed = np.trim_zeros(np.array(self.coefficients, float), "b")
        return trimmed / _deviation(hermite_e.poly2herme(trimmed))

    @property
    def degree(self) -> int:
        """q, the degree of the polynomial."""
        return len(self.scaled) - 1

    @cached_property
    def hermite(self) -> np.ndarray:
        """alpha*_k with s = sum_k alpha*_k He_k, (degree + 1,); sum_k k! alpha*_k^2 = 1."""
        series = hermite_e.poly2herme(self.scaled)
        series[0] = 0.0
        return series

    @property
    def information_exponent(self) -> int:
        """The least k >= 1 with alpha*_k != 0 (Arous, Gheissari, Jagannath 2021)."""
        return int(np.flatnonzero(np.abs(self.hermite) > _ROUNDING)[0])

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """s(u), elementwise."""
        return polynomial.polyval(u, self.scaled)


def link(coefficients: Sequence[float]) -> Link:
    """The link with these coefficients of 1, u, u^2, ..."""
    return Link(tuple(float(value) for value in coefficients))


def _deviation(series: np.ndarray) -> float:
    """Standard deviation of sum_k series_k He_k(u), u ~ N(0, 1): E He_k^2 = k!."""
    orders = np.arange(1, len(series))
    return float(np.sqrt(np.sum(factorial(orders) * series[1:] ** 2)))
