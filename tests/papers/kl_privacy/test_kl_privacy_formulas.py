"""Formulas of kl_privacy against independent computations, and Table 1 in symbols."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpatlas.errors import InputError
from dpatlas.formulas.kl_privacy import theorems

positive = st.floats(1e-6, 1e6)
inits = st.sampled_from(theorems.INITS)
widths = st.integers(1, 5000)
depths = st.integers(2, 60)


def test_layer_variances_are_the_rows_of_table_1():
    d, m, L, o = 7, 5, 4, 3
    expected = {
        "lecun": [1 / 7, 1 / 5, 1 / 5, 1 / 5],
        "he": [2 / 7, 2 / 5, 2 / 5, 2 / 5],
        "ntk": [2 / 5, 2 / 5, 2 / 5, 1 / 3],
        "xavier": [2 / 12, 2 / 10, 2 / 10, 2 / 8],
    }
    for init in theorems.INITS:
        np.testing.assert_allclose(theorems.layer_variances(init, d, m, L, o), expected[init])


@given(init=inits, d=widths, m=widths, L=depths, o=widths)
def test_constants_are_the_products_over_layers(init, d, m, L, o):
    beta = theorems.layer_variances(init, d, m, L, o)
    B = d * o * np.prod(beta[:-1] * m / 2) * np.sum(beta[-1] / beta)
    assert theorems.gradient_norm_constant(init, d, m, L, o) == pytest.approx(B, rel=1e-9)
    beta = theorems.layer_variances(init, d, m, L, 1)
    R = max(1 / (d * beta[-1] * np.prod(beta[:-1] * m)), 1) * 20 / np.sum(1 / beta)
    assert theorems.lazy_distance(init, d, m, L, 20) == pytest.approx(R, rel=1e-9)


@given(
    relation=st.sampled_from(["remove", "add", "simple"]),
    g=st.lists(st.floats(-100, 100), min_size=3, max_size=3),
    gbar=st.lists(st.floats(-100, 100), min_size=3, max_size=3),
    n=st.integers(2, 10**6),
)
def test_neighbour_gap_is_the_norm_of_a_difference_of_means(relation, g, gbar, n):
    g, gbar = np.array(g), np.array(gbar)
    neighbour_mean = {
        "remove": (n * gbar - g) / (n - 1),
        "add": (n * gbar + g) / (n + 1),
        "simple": gbar - g / n,
    }[relation]
    gap = theorems.neighbour_gap(relation, n, g @ g, gbar @ gbar, g @ gbar)
    scale = (g @ g + gbar @ gbar) / n**2
    assert gap == pytest.approx(np.sum((gbar - neighbour_mean) ** 2), abs=1e-6 * scale)


def test_formulas_work_elementwise_and_the_drift_integral_overflows_to_infinity():
    L = np.arange(2, 12)
    for init in theorems.INITS:
        alone = [theorems.gradient_norm_constant(init, 30, 20, int(depth), 2) for depth in L]
        assert theorems.gradient_norm_constant(init, 30, 20, L, 2) == pytest.approx(alone)
    T = np.array([0.0, 1e-6, 0.5, 2000.0])
    arguments = dict(beta=2, c=1, n=5, gdiff0=0.2, g0=1.0, sigma2=0.1, rank=3)
    together = theorems.kl_drift_integral(T, **arguments)
    np.testing.assert_array_equal(
        together, [theorems.kl_drift_integral(time, **arguments) for time in T]
    )
    assert (together[0], together[-1]) == (0, math.inf)


@given(T=st.floats(1e-12, 1e-3), beta=st.floats(1e-3, 3))
def test_drift_integral_keeps_its_digits_for_short_times(T, beta):
    """(e^x - 1 - x) is x^2 / 2 to first order in x = (2 + beta^2) T."""
    arguments = dict(T=T, beta=beta, c=0.0, n=1, gdiff0=0.0, g0=1.0, sigma2=1.0, rank=1)
    x = (2 + beta**2) * T
    leading = 8 * beta**2 * T**2 / 2 * 3
    assert theorems.kl_drift_integral(**arguments) / leading == pytest.approx(
        1 + x / 3, rel=x**2 + 1e-12
    )


@given(T=st.floats(0, 1e3), beta=st.floats(1e-300, 1e300), c=st.floats(0, 1e300), sigma2=positive)
def test_drift_integral_is_a_number_or_inf_but_never_nan(T, beta, c, sigma2):
    arguments = dict(beta=beta, c=c, n=3, gdiff0=1.0, g0=1.0, sigma2=sigma2, rank=2)
    exact = theorems.kl_drift_integral(T, **arguments)
    assert exact >= theorems.kl_drift_integral(T, **arguments, convention="paper") >= 2 * T


@given(B=positive, R=positive, n=st.integers(1, 10**6), eps=positive, other=st.floats(0.1, 10))
def test_excess_risk_term_is_attained_at_its_time_and_nowhere_undercut(B, R, n, eps, other):
    """Both conventions: noise from Cor. 4.2, risk from Lemma 6.1 with rank n."""
    best = theorems.excess_risk_time(B, R, n, eps)
    for convention in ("exact", "paper"):
        sigma2 = theorems.kl_linearized(B, best, n, 1.0, convention) / eps
        assert theorems.kl_linearized(B, best, n, sigma2, convention) == pytest.approx(eps)
        risk = theorems.excess_risk_averaged_iterate(0.0, R, best, sigma2, n, convention)
        assert risk == pytest.approx(theorems.excess_risk_term(B, R, n, eps))
        elsewhere = theorems.excess_risk_averaged_iterate(
            0.0, R, other * best, other * sigma2, n, convention
        )
        assert elsewhere >= risk * (1 - 1e-12)


@given(init=inits, d=widths, m=widths, L=depths, n=widths)
def test_corrected_lazy_distance_adds_at_most_the_missing_power_of_two(init, d, m, L, n):
    ratio = theorems.lazy_distance_corrected(init, d, m, L, n) / theorems.lazy_distance(
        init, d, m, L, n
    )
    assert 1 - 1e-12 <= ratio <= 2.0 ** (L - 1) * (1 + 1e-12)
    if init == "lecun":
        assert ratio == pytest.approx(2.0 ** (L - 1))
    if init in ("he", "ntk"):
        assert ratio == pytest.approx(1)


def tex_value(tex, **symbols):
    """Value of the TeX arithmetic that `TABLE_1` uses: juxtaposition multiplies."""
    text = tex.replace(r"\frac", "").replace("}{", ")/(").replace("^", "**").replace("\\", "")
    text = text.replace("{", "(").replace("}", ")")
    product = re.sub(r"(?<=[\w)])\s+(?=[\w(])", "*", text)
    return eval(product, {"sqrt": math.sqrt, **symbols})


SIZES = [
    dict(d=d, m=m, L=L, n=50) for d, m in ((40, 30), (700, 900), (64, 64)) for L in (2, 3, 7, 12)
]


@pytest.mark.parametrize("init", theorems.INITS)
def test_symbolic_B_of_table_1_is_the_formula(init):
    for size in SIZES:
        network = {key: size[key] for key in "dmL"}
        value = tex_value(theorems.TABLE_1[init]["B"], **size, o=10)
        assert value == pytest.approx(
            theorems.gradient_norm_constant(init, **network, o=10), rel=1e-12
        )


@pytest.mark.parametrize("init", theorems.INITS)
def test_symbolic_R_and_risk_of_table_1_follow_the_formulas_up_to_constants(init):
    """The rows drop constant factors; nothing that depends on depth or grows with a size."""
    row, eps = theorems.TABLE_1[init], 0.3
    for size in SIZES:
        B = theorems.gradient_norm_constant(init, size["d"], size["m"], size["L"], 1)
        for distance, R_tex, risk_tex in (
            (theorems.lazy_distance, row["R_printed"], row["risk_printed"]),
            (theorems.lazy_distance_corrected, row["R_corrected"], row["risk_corrected"]),
        ):
            R = distance(init, **size)
            assert 0.249 <= tex_value(R_tex, **size) / R <= 4.001
            risk = theorems.excess_risk_term(B, R, size["n"], eps)
            assert 0.249 <= tex_value(risk_tex, **size, varepsilon=eps) / risk <= 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: theorems.kl_step(1.0, 0.0, 1.0),
        lambda: theorems.neighbour_gap("remove", 1, 1.0, 1.0, 0.0),
        lambda: theorems.excess_risk_averaged_iterate(0.0, 1.0, 1.0, np.array([0.1, 0.0]), 1),
        lambda: theorems.layer_variances("glorot", 3, 3, 3, 1),
    ],
)
def test_values_outside_the_domains_are_refused(call):
    with pytest.raises(InputError):
        call()
