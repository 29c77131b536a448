"""Links of single-index models: their Hermite expansion, unit variance, and what is refused."""

import math

import numpy as np
import pytest
from numpy.polynomial import hermite_e

from dpatlas.errors import InputError
from dpatlas.formulas.feature_learning.single_index import link

ROOT2 = math.sqrt(2)
# Coefficients of 1, u, u^2, ...; alpha*_0, alpha*_1, ... at unit variance; information exponent.
LINKS = {
    "mixed": ([-0.5, 1, 0.5], [0, math.sqrt(2 / 3), math.sqrt(1 / 6)], 1),
    "odd": ([0, -0.5, 0, 0.5], [0, math.sqrt(0.4), 0, math.sqrt(0.1)], 1),
    "even": ([-1, 0, 1], [0, 0, 1 / ROOT2], 2),
    "fourth": ([3, 0, -6, 0, 1], [0, 0, 0, 0, 1 / math.sqrt(24)], 4),
    "falling": ([0, -2], [0, -1], 1),
    "trailing zeros": ([-1, 0, 1, 0, 0], [0, 0, 1 / ROOT2], 2),
}


def gaussian(degree):
    """Nodes and weights that take expectations of polynomials of u ~ N(0, 1) exactly."""
    nodes, weights = hermite_e.hermegauss(degree + 1)
    return nodes, weights / weights.sum()


@pytest.mark.parametrize(("coefficients", "expected", "exponent"), LINKS.values(), ids=LINKS)
def test_a_link_is_its_polynomial_at_unit_variance_with_known_hermite_coefficients(
    coefficients, expected, exponent
):
    s = link(coefficients)
    np.testing.assert_allclose(s.hermite, expected, atol=1e-14)
    assert s.information_exponent == exponent
    assert s.degree == len(expected) - 1
    u, weights = gaussian(10)
    assert weights @ s(u) ** 2 == pytest.approx(1, rel=1e-12)
    polynomial = sum(c * u**k for k, c in enumerate(coefficients))
    deviation = math.sqrt(weights @ polynomial**2)
    np.testing.assert_allclose(s(u) * deviation, polynomial, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_hermite_coefficients_are_expectations_by_quadrature(seed):
    coefficients = np.random.default_rng(seed).normal(size=seed + 3)
    u, weights = gaussian(2 * len(coefficients))
    coefficients[0] -= weights @ np.polynomial.polynomial.polyval(u, coefficients)
    s = link(coefficients)
    for order, coefficient in enumerate(s.hermite):
        polynomial = hermite_e.hermeval(u, np.eye(order + 1)[order])
        expectation = weights @ (s(u) * polynomial) / math.factorial(order)
        assert coefficient == pytest.approx(expectation, abs=1e-12)


def test_a_mean_of_rounding_is_none():
    third = 1 / 3
    s = link([-0.1 - third, 1, 0.1 + third])
    assert s.hermite[0] == 0
    assert s.information_exponent == 1


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        ([1, 1], r"polynomial: found \[1.0, 1.0\], whose mean under N\(0, 1\) is 1"),
        ([-1 + 1e-6, 0, 1], "whose mean under .* is 1e-06"),
        ([3, 0, 0], "allowed: one that is not constant"),
        ([0, 1, math.inf], "allowed: numbers"),
    ],
)
def test_a_link_with_a_mean_or_without_variance_is_refused_in_one_line(coefficients, message):
    with pytest.raises(InputError, match=message) as caught:
        link(coefficients)
    assert "\n" not in str(caught.value)
