"""The universe that certificates pay for: weights by hand, their sum, and coverage after looks."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from dpatlas.errors import InputError
from dpatlas.formulas.max_information import universe

LEVELS = {"delta": 0.05, "delta_mc": 0.0125, "beta": 0.025}
INDEPENDENT = {
    **{"kind": "independent", "model": "mlp", "widths": [100], "normalise": None},
    **{"tau": 0.4, "tau_is": "deviation", "n": 1437, "look": 1, "run": 0},
}
DP_SGD = {**INDEPENDENT, "kind": "dp-sgd", "zeta": 0.02, "sigma": 1.0, "m": 359, "E": 3, "lr": 40.0}


def power_share(k):
    """Of the decimals that begin at 10^k."""
    return Fraction(2, 3 * (abs(k) + 1) * (abs(k) + 2))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, Fraction(1, 2 * 9) * power_share(0)),
        (0.015, Fraction(1, 4 * 81) * power_share(-2)),
        (256, Fraction(1, 8 * 810) * power_share(2)),
        (0.1307, Fraction(1, 16 * 8100) * power_share(-1)),
        # Though its double is not 3/10 but a little less.
        (0.3, Fraction(1, 2 * 9) * power_share(-1)),
    ],
)
def test_weights_of_decimals_by_hand(value, expected):
    assert universe.decimal_weight(value) == pytest.approx(float(expected), rel=1e-14, abs=0)


def test_all_decimals_of_a_power_weigh_their_share_and_all_powers_and_whole_numbers_one():
    # Every decimal of at most four digits that begins at 10^k is one of 9,000.
    for k in (-2, 0, 3):
        values = np.array([float(f"{digits}e{k - 3}") for digits in range(1000, 10_000)])
        share = (1 - Fraction(1, 2**universe.DIGITS)) * power_share(k)
        assert universe.decimal_weight(values).sum() == pytest.approx(float(share), rel=1e-9)
    # The tail beyond |k| = K is 4 / (3 (K + 2)), so that all powers have 1.
    K = 500
    tail = Fraction(4, 3 * (K + 2))
    assert sum(power_share(k) for k in range(-K, K + 1)) + tail == 1
    numbers = np.arange(1, 100_001)
    assert universe.whole_weight(numbers).sum() == pytest.approx(1 - 1 / 100_001, rel=1e-9)


def test_all_batches_weigh_at_most_one_and_the_largest_of_a_kind_the_most():
    for n in (60, 1437):
        weights = {
            m: universe.setting_weight(**{**DP_SGD, "n": n, "m": m}) for m in range(1, n + 1)
        }
        # One batch an epoch: m from n / 2 to n, whose weights sum to 1 / 2.
        half = sum(weight for m, weight in weights.items() if n // m == 1)
        # Not every number of batches has a size: n = 60 has no 9.
        assert 0.9 < sum(weights.values()) / (2 * half) < 1
        for T in (1, 2, 3, 4):
            alike = [weight for m, weight in weights.items() if n // m == T]
            assert sum(alike) == pytest.approx(2 * half / (T * (T + 1)), rel=1e-9, abs=0)
            # In the order of m.
            assert alike[-1] == pytest.approx((len(alike) + 1) * alike[0], rel=1e-9, abs=0)


def test_the_weight_of_a_setting_is_a_product_of_factors_that_each_sum_to_at_most_one():
    """Sums of the weights of decimals, whole numbers and batches are tested above."""
    d, whole = universe.decimal_weight, universe.whole_weight
    # Of 3 kinds, 2 models, 2 readings of tau, scaled inputs or not.
    choices = 1 / (3 * 2 * 2 * 2)
    network, at = whole(2) * d(100.0) * d(200.0), {"tau": 0.15, "look": 2, "run": 2}
    common = choices * d(0.15) * whole(2) * whole(3)
    normalise = {"means": [0.5], "deviations": [0.3]}
    for kind, mechanism in (
        ({**INDEPENDENT, **at}, 1.0),
        # Of the 72 sizes that give four batches of 1437, 359 is the largest; of two samplers.
        ({**DP_SGD, **at}, whole(4) * (1 + 1 / 72) / 2 * whole(3) * d(0.02) * d(40.0) / 2),
    ):
        for model, weight in (
            ({"widths": [100, 200]}, common * network),
            ({"model": "bayes-cnn9", "widths": []}, common),
            ({"widths": [100, 200], "normalise": normalise}, common * network * d(0.5) * d(0.3)),
        ):
            # Far below the absolute tolerance that is approx's default.
            expected = pytest.approx(weight * mechanism, rel=1e-9, abs=0)
            assert universe.setting_weight(**{**kind, **model}) == expected


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"zeta": 0.012345}, r"grid.zetas: found 0.012345; allowed: at most 4 significant digits"),
        ({"m": 1438}, "grid.m: found 1438"),
        ({"sigma": 2.0}, "grid.sigma: found 2.0; allowed: 1:"),
        ({"sampler": "poisson"}, "priors.sampler: found 'poisson'"),
        ({"widths": [100] * 200}, "options.widths: found a setting that costs more than 576 nats"),
        ({"look": 0}, "look: found 0"),
    ],
)
def test_settings_outside_of_the_universe_are_refused_by_name(changes, complaint):
    with pytest.raises(InputError, match=complaint):
        universe.setting_weight(**{**DP_SGD, **changes})


@pytest.mark.parametrize("weight", [1.0, 1 / 24, 1e-15])
def test_the_certificate_by_roots_of_its_definition(weight):
    errors, draws, kl, kappa, n = 1234, 10_000, 300.0, 20.0, 1437
    delta, delta_mc, beta = LEVELS.values()
    limit = brentq(
        lambda p: binom.logcdf(errors, draws, p) - math.log(delta_mc * weight), 0.13, 0.9
    )
    left = math.log(2 * math.sqrt(n) / (delta - delta_mc - beta))
    paid = (kl + kappa + left + math.log(1 / weight)) / n

    def excess(p):
        return limit * math.log(limit / p) + (1 - limit) * math.log((1 - limit) / (1 - p)) - paid

    expected = brentq(excess, limit, 1 - 1e-12)
    found = universe.certificate_universe(errors / draws, draws, kl, kappa, n, weight, **LEVELS)
    assert found == pytest.approx(expected, rel=1e-8)
    assert found >= expected - 1e-10


def test_certificates_cover_the_setting_that_an_adversary_chooses_after_seeing_all():
    """Prior i is the best of 100^i predictors on the records: max-information log 100^i.

    Whoever sees records, counts and true risks picks any setting whose certificate fails.
    """
    rng = np.random.default_rng(0)
    n, draws, rate, repetitions = 50, 20_000, 0.5, 2000
    level = {"delta": 0.4, "delta_mc": 0.2, "beta": 0.0}
    fails = {name: np.zeros(repetitions, bool) for name in ("paid", "no kappa")}
    for i in range(1, 7):
        # The least of so many binomials, by inversion.
        least = -np.expm1(np.log1p(-rng.random(repetitions)) / 100**i)
        best = binom.ppf(least, n, rate) / n
        counted = rng.binomial(draws, best) / draws
        for name, kappa in (("paid", i * math.log(100)), ("no kappa", 0.0)):
            weight = float(universe.whole_weight(i))
            found = universe.certificate_universe(counted, draws, 0.0, kappa, n, weight, **level)
            fails[name] |= found < rate
    assert fails["paid"].mean() <= 0.4
    assert fails["no kappa"].mean() > 0.4


def test_without_its_weight_a_setting_invented_after_a_look_is_not_covered():
    """Predictors that ignore the records; the one that was lucky on them is chosen afterwards."""
    rng = np.random.default_rng(1)
    n, draws, settings, repetitions = 50, 1000, 2000, 100
    level = {"delta": 0.3, "delta_mc": 0.15, "beta": 0.0}
    weights = universe.whole_weight(np.arange(1, settings + 1))
    missed = {"paid": 0, "free": 0}
    for _ in range(repetitions):
        seen = rng.binomial(n, 0.5, settings) / n
        counted = rng.binomial(draws, seen) / draws
        for name, own in (("paid", weights), ("free", 1.0)):
            found = universe.certificate_universe(counted, draws, 0.0, 0.0, n, own, **level)
            missed[name] += bool(np.any(found < 0.5))
    assert missed["paid"] / repetitions <= 0.3
    assert missed["free"] / repetitions > 0.6
