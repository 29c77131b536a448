"""Certificates: rounding against 60-digit arithmetic, coverage of error rates exactly."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpatlas.formulas.max_information import certificates

risks = st.floats(0, 1)
# From 1e-30 to 1000.
complexities = st.floats(-30, 3).map(lambda power: 10.0**power)


def exact_kl(q, p):
    """kl(q || p) for 0 < p < 1, to 60 digits less what cancels."""
    with localcontext() as context:
        context.prec = 100
        q, p = Decimal(float(q)), Decimal(float(p))
        success = q * (q / p).ln() if q else Decimal(0)
        return success + ((1 - q) * ((1 - q) / (1 - p)).ln() if q < 1 else 0)


@pytest.mark.parametrize("q", [0.0, 1e-300, 1e-20, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("gap", [1e-20, 1e-15, 1e-10, 1e-3, 0.02, 0.09])
def test_kl_bernoulli_has_its_digits_where_its_arguments_are_small_or_near(q, gap):
    p = q + gap
    for first, second in ((q, p), (1 - q, 1 - p)):
        expected = float(exact_kl(first, second))
        assert certificates.kl_bernoulli(first, second) == pytest.approx(expected, rel=1e-14, abs=0)


def test_kl_bernoulli_at_the_ends_and_of_arrays():
    q, p = np.array([0.0, 1.0, 1.0, 0.0, 0.5]), np.array([[0.0], [1.0]])
    inf = math.inf
    expected = [[0, inf, inf, 0, inf], [inf, 0, 0, inf, inf]]
    assert certificates.kl_bernoulli(q, p).tolist() == expected
    # Nothing is certified by an infinite kappa.
    assert certificates.certificate(0.1, 1.0, inf, 1000, 100, 7, 0.05, 0.0125, 0.025) == 1


@given(q=risks, c=complexities)
def test_kl_inverse_is_never_below_the_true_value_and_hardly_above(q, c):
    p = float(certificates.kl_inverse(q, c))
    assert q <= p <= 1
    if p < 1:
        assert exact_kl(q, p) > Decimal(c)
    less = p - 2e-14 * p
    if less > q:
        assert exact_kl(q, less) < Decimal(c)


@pytest.mark.parametrize(
    "q, c, expected",
    [
        (0.0, 0.3, -math.expm1(-0.3)),
        (1.0, 0.3, 1.0),
        (0.3, math.inf, 1.0),
        (0.25, 0.0, 0.25),
        (0.5, 800.0, 1.0),
    ],
)
def test_kl_inverse_at_the_ends(q, c, expected):
    found = certificates.kl_inverse(q, c)
    assert found == pytest.approx(expected, rel=1e-14)
    assert expected <= found <= 1


@given(
    kl=st.floats(0, 1e6),
    n=st.integers(1, 10**9),
    K1=st.integers(1, 10**4),
    delta=st.floats(1e-6, 0.9),
    spent=st.floats(0, 1 - 1e-9),
)
@example(kl=0.0, n=1, K1=1, delta=0.05, spent=1 - 1e-9)
def test_certificate_exponent_is_never_below_the_true_value(kl, n, K1, delta, spent):
    beta = spent * delta
    found = certificates.certificate_exponent(kl, 0.5, n, K1, 7, delta, 0.0, beta)
    with localcontext() as context:
        context.prec = 60
        level = 2 * K1 * 7 * Decimal(n).sqrt() / (Decimal(delta) - Decimal(beta))
        exact = (Decimal(kl) + Decimal("0.5") + level.ln()) / n
        assert exact < Decimal(float(found)) < exact * (1 + Decimal("1e-6"))


@given(errors=st.integers(0, 40), delta_mc=st.floats(1e-6, 0.9))
def test_clopper_pearson_leaves_its_level_in_the_tail_exactly(errors, delta_mc):
    """P(Bin(40, p) <= errors) <= delta_mc at the limit, in fractions, and above before it."""
    limit = float(certificates.monte_carlo_risk(errors / 40, 40, delta_mc, "clopper-pearson"))
    if errors == 40:
        assert limit == 1
        return

    def tail(p):
        p = Fraction(p)
        return sum(math.comb(40, k) * p**k * (1 - p) ** (40 - k) for k in range(errors + 1))

    assert tail(limit) <= Fraction(delta_mc) < tail(limit * (1 - 1e-7))


@given(errors=st.integers(0, 200), delta_mc=st.floats(1e-6, 0.5))
def test_intervals_are_ordered(errors, delta_mc):
    limits = [
        certificates.monte_carlo_risk(errors / 200, 200, delta_mc, interval)
        for interval in ("clopper-pearson", "chernoff", "paper")
    ]
    assert errors / 200 <= limits[0] <= limits[1] <= limits[2]


@given(gap=st.floats(-3, 3), scale=st.floats(0.01, 1), tau=st.floats(0.01, 1))
def test_gaussian_kl_is_that_of_two_normal_laws(gap, scale, tau):
    def closed(deviation):
        return math.log(deviation / scale) + (scale**2 + gap**2) / (2 * deviation**2) - 0.5

    assert certificates.gaussian_kl(gap, scale, tau) == pytest.approx(
        closed(tau), rel=1e-9, abs=1e-12
    )
    found = certificates.gaussian_kl(gap, scale, tau, tau_is="variance")
    assert found == pytest.approx(closed(math.sqrt(tau)), rel=1e-9, abs=1e-12)
    assert found >= 0
