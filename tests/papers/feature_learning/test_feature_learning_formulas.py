"""Formulas of feature_learning: its links, noise and rates, and whether its layers are private."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import hermite_e

from dpatlas.accounting.gaussian_dp import gaussian_delta
from dpatlas.catalogue import evaluate
from dpatlas.errors import InputError
from dpatlas.formulas.feature_learning.rates import (
    eps_n,
    first_layer_rate,
    gaussian_dp_mu,
    largest_epsilon,
    penalty,
    printed_first_layer_mu,
    printed_first_layer_noise,
    printed_first_layer_width,
    risk_rate,
    second_layer_delta,
    second_layer_mu,
)
from dpatlas.formulas.feature_learning.single_index import link

DELTAS = (1e-10, 1e-5, 1e-2, 0.3)
levels = st.floats(1e-10, 0.3)


def test_the_printed_noise_is_assumption_4_s_and_depends_on_neither_eps_nor_delta():
    assert set(inspect.signature(printed_first_layer_noise).parameters) == {"d", "n", "q", "eps_b"}
    noise = printed_first_layer_noise(100, 2500, 3, 0.5)
    assert noise == pytest.approx(math.sqrt(100**1.5 / 2500) * math.log(100) ** 6, rel=1e-14)
    for name in ("eps", "delta"):
        with pytest.raises(InputError, match=f"argument: found '{name}'"):
            inputs = {"d": 64, "n": 20_000, "q": 2, name: 0.5}
            evaluate("feature-noise-assumption4", inputs)


@given(d=st.integers(2, 1000), n=st.integers(1001, 10**7), p=st.integers(1, 10_000))
def test_rates_are_powers_of_eps_n(d, n, p):
    """d^(3 eps_n) = n / d, so eta_W = sqrt(p n / d), and lambda = p (d / n)^(2/3)."""
    assert d ** (1 + 3 * eps_n(n, d)) == pytest.approx(n, rel=1e-9)
    assert first_layer_rate(n, d, p) == pytest.approx(math.sqrt(p * n / d), rel=1e-9)
    assert penalty(n, d, p) == pytest.approx(p * (d / n) ** (2 / 3), rel=1e-9)
    expected = d / n * (n / d) ** (1 / 3) * math.log(1.25e5) / 4
    assert risk_rate(n, d, 2.0, 1e-5) == pytest.approx(expected, rel=1e-9)


@given(
    d=st.integers(2, 500),
    n=st.integers(501, 10**6),
    q=st.integers(1, 4),
    eps=st.floats(0.05, 20),
    delta=levels,
)
def test_above_the_printed_width_and_nowhere_below_the_first_layer_exceeds_mu(d, n, q, eps, delta):
    width, allowed = printed_first_layer_width(d, n, q, eps, delta), gaussian_dp_mu(eps, delta)
    for p in {max(1, math.floor(width) + change) for change in (-1, 0, 1, 2)}:
        if abs(p - width) > 1e-9 * width:
            mu = printed_first_layer_mu(d, n, q, p)
            assert (mu > allowed) == (p > width)
            assert (gaussian_delta(mu, eps) > delta) == (p > width)


def test_the_printed_first_layer_is_not_private_above_311_neurons_at_laptop_scale():
    width = printed_first_layer_width(64, 20_000, 2, 2.0, 1e-5)
    assert 311 < width < 312
    for p, private in ((311, True), (312, False), (2000, False)):
        assert (gaussian_delta(printed_first_layer_mu(64, 20_000, 2, p), 2.0) <= 1e-5) == private


@pytest.mark.parametrize(("eta", "C", "n", "T"), [(1.0, 1.0, 1, 1), (0.01, 3.0, 500, 100)])
def test_the_second_layer_s_steps_compose_to_mu_whatever_their_number(eta, C, n, T):
    eps, delta = 2.0, 1e-5
    sigma_a = math.sqrt(eta * T) * math.sqrt(8 * math.log(1 / delta)) / eps
    noise = math.sqrt(eta) * C / n * sigma_a
    for relation, sensitivity in (("add_remove", C / n), ("replace_one", 2 * C / n)):
        expected = math.sqrt(T) * eta * sensitivity / noise
        assert second_layer_mu(eps, delta, relation) == pytest.approx(expected, rel=1e-12)


def epsilons(delta):
    """A grid of Assumption 3's range, its ends left out."""
    return np.linspace(0, largest_epsilon(delta), 400)[1:-1]


@pytest.mark.parametrize("delta", DELTAS)
def test_the_second_layer_is_as_private_as_claimed_with_the_sensitivity_of_the_argument(delta):
    """feat-6: its delta is below the claimed one by a factor of 8 and more."""
    deltas = [second_layer_delta(eps, delta) for eps in epsilons(delta)]
    assert max(deltas) < delta / 8
    assert deltas[-1] > 0


@pytest.mark.parametrize(
    ("delta", "first"), [(1e-10, 9.426), (1e-5, 7.968), (1e-2, 6.248), (0.3, 4.208)]
)
def test_the_second_layer_is_not_private_for_replaced_records_at_larger_epsilons(delta, first):
    """With 2 C_a / n it is up to `first`, and from there to the end of Assumption 3's range not."""
    for eps in (*epsilons(delta), first * (1 - 1e-3), first * (1 + 1e-3)):
        assert (second_layer_delta(eps, delta, "replace_one") > delta) == (eps > first)


# Coefficients of 1, u, u^2, ..., and the information exponent.
LINKS = {
    "mixed": ([-0.5, 1, 0.5], 1),
    "odd": ([0, -0.5, 0, 0.5], 1),
    "even": ([-1, 0, 1], 2),
    "fourth": ([3, 0, -6, 0, 1], 4),
    "falling": ([0, -2], 1),
    "trailing zeros": ([-1, 0, 1, 0, 0], 2),
}


@pytest.mark.parametrize(("coefficients", "exponent"), LINKS.values(), ids=LINKS)
def test_a_link_is_its_polynomial_at_unit_variance_with_its_hermite_coefficients(
    coefficients, exponent
):
    s = link(coefficients)
    assert s.information_exponent == exponent
    assert s.degree == max(np.nonzero(coefficients)[0])
    # Nodes and weights that take expectations of polynomials of u ~ N(0, 1) exactly.
    u, weights = hermite_e.hermegauss(11)
    weights /= weights.sum()
    assert weights @ s(u) ** 2 == pytest.approx(1, rel=1e-12)
    polynomial = sum(c * u**k for k, c in enumerate(coefficients))
    deviation = math.sqrt(weights @ polynomial**2)
    np.testing.assert_allclose(s(u) * deviation, polynomial, rtol=1e-9, atol=1e-9)
    assert len(s.hermite) == s.degree + 1
    for order, coefficient in enumerate(s.hermite):
        of_order = hermite_e.hermeval(u, np.eye(order + 1)[order])
        expectation = weights @ (s(u) * of_order) / math.factorial(order)
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
