import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from gaussian_profile import hockey_stick, step_densities

from dpatlas.accounting import accountants
from dpatlas.accounting import guarantees as accounting
from dpatlas.accounting.gaussian_dp import gaussian_delta
from dpatlas.accounting.guarantees import ACCOUNTANTS, RELATIONS, Phase, guarantee
from dpatlas.accounting.samplers import FixedSize, FullBatch, Poisson


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("noise", "steps"), [(0.05, 1), (0.5, 300), (1, 1), (20, 300), (1000, 1), (1000, 300)]
)
def test_full_batch_is_the_analytic_gaussian(relation, noise, steps):
    mu = math.sqrt(steps) * (2 if relation == "replace_one" else 1) / noise
    phases = [Phase(FullBatch(50), noise, steps)]
    for delta in (1e-2, 1e-5, 1e-9):
        if gaussian_delta(mu, 0) < delta:
            assert guarantee(phases, delta, relation).epsilon < 1e-6
            continue
        exact = dp_accounting.get_epsilon_gaussian(1 / mu, delta)
        pld = guarantee(phases, delta, relation, "pld").epsilon
        rdp = guarantee(phases, delta, relation, "rdp").epsilon
        assert exact <= pld <= exact * 1.003 + 1e-6
        assert exact <= rdp <= exact * 1.3 + 0.1
        if exact < 300:
            assert gaussian_delta(mu, pld) <= delta


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("q", "noise"), [(0.2, 0.7), (0.05, 1.0), (0.9, 2.0)])
def test_one_poisson_step_is_the_exact_hockey_stick_in_both_directions(relation, q, noise):
    phases = [Phase(Poisson(1000, round(1000 * q)), noise, 1)]
    upper, lower, cell = step_densities(q, noise, relation)
    for delta in (1e-2, 1e-5):
        epsilon = guarantee(phases, delta, relation).epsilon
        tightest = max(epsilon * (1 - 3e-3) - 1e-5, 0)
        worst = [
            max(hockey_stick(upper, lower, e, cell), hockey_stick(lower, upper, e, cell))
            for e in (epsilon, tightest)
        ]
        assert worst[0] <= delta * (1 + 1e-6)
        assert worst[1] > delta or epsilon == 0


@pytest.mark.parametrize(
    ("relation", "batch", "noise", "steps"),
    [
        ("add_remove", 100, 0.5, 2000),
        ("replace_one", 100, 4, 10_000),
        ("replace_one", 2000, 1, 300),
    ],
)
def test_the_coarse_grid_costs_less_than_one_percent(relation, batch, noise, steps):
    coarse = guarantee([Phase(Poisson(10_000, batch), noise, steps)], 1e-5, relation, "pld")
    fine = PLDAccountant(accountants._neighbours(relation), value_discretization_interval=1e-4)
    event = dp_accounting.PoissonSampledDpEvent(
        batch / 10_000, dp_accounting.GaussianDpEvent(noise)
    )
    exact = fine.compose(event, steps).get_epsilon(1e-5)
    assert exact * 0.999 < coarse.epsilon < exact * 1.01


@pytest.mark.parametrize("delta", [1e-3, 1e-7, 1e-10, 1e-11])
def test_epsilon_stays_above_the_exact_one_where_the_convolutions_lose_digits(delta):
    # Rate one, so that the exact value is known, through the sampled path, which convolves.
    found = guarantee([Phase(Poisson(8, 8), 20.0, 1000)], delta, "add_remove", "pld")
    exact = dp_accounting.get_epsilon_gaussian(20 / math.sqrt(1000), delta)
    assert exact <= found.epsilon <= exact * 1.01


@pytest.mark.parametrize(
    ("kind", "relation"), [(Poisson, "add_remove"), (FixedSize, "replace_one")]
)
def test_what_the_convolutions_may_lose_is_taken_off_delta(kind, relation, monkeypatch):
    phases = [Phase(kind(1000, 100), 2.0, 50)]
    monkeypatch.setattr(accountants, "FFT_ERROR", 0.0)
    smaller = guarantee(phases, 0.9e-5, relation).epsilon
    monkeypatch.setattr(accountants, "FFT_ERROR", 0.1e-5 / 50 * (1 - 1e-12))
    # What an earlier call found does not know of the patch.
    accounting._accounted.cache_clear()
    assert guarantee(phases, 1e-5, relation).epsilon == pytest.approx(smaller, rel=1e-9)


def test_a_sample_is_never_charged_more_than_all_records():
    full, *sampled = (
        guarantee([Phase(kind, 4.0, 100)], 1e-5, "replace_one", "rdp").epsilon
        for kind in (FullBatch(1000), *(FixedSize(1000, batch) for batch in (500, 900, 1000)))
    )
    assert 0.9 * full < min(sampled) and max(sampled) <= full


@pytest.mark.parametrize(
    ("phase", "order"),
    [
        (Phase(FullBatch(10), 1e4, 20), max(accountants.RDP_ORDERS)),
        (Phase(FullBatch(10), 0.01, 20), min(accountants.RDP_ORDERS)),
        # The package's series converge at no order below the best one: the range begins there.
        (Phase(Poisson(1000, 200), 0.1, 100), None),
    ],
)
def test_the_best_order_at_the_end_of_the_range_gives_a_warning(phase, order):
    (warning,) = guarantee([phase], 1e-5, "add_remove", "rdp").warnings
    assert (f"the best order, {order:g}, " if order else "") + "ends the range" in warning
    assert guarantee([Phase(FullBatch(10), 5.0, 20)], 1e-5, "add_remove", "rdp").warnings == ()


@pytest.mark.parametrize(
    ("n", "sigma"), [(2, 1e5), (10**5, 300.0), (10**8, 1000.0), (10**9, 1.0), (10**12, 30.0)]
)
def test_divergences_whose_moments_are_near_one_are_not_lost_to_rounding(n, sigma):
    """order q^2 (e^(1 / sigma^2) - 1) / 2: where q or 1 / sigma is tiny, that is nearly all."""
    orders = np.array([1.5, 1.9, 2.0, 2.5, 2.75, 3.0, 8.0, 30.0])
    release = accountants.Mechanism(Poisson(n, 1), sigma, 1)
    curve = accountants.rdp_curve([release], "add_remove", orders)
    whole = orders == np.round(orders)
    first = orders / 2 * math.expm1(sigma**-2) / n**2
    assert (curve >= first * (1 - 1e-3)).all()
    assert curve[whole] == pytest.approx(first[whole], rel=1e-3, abs=0)
    # Between whole orders by the convexity of the log moment; at large rates the package's own
    # numbers, which are far larger, stand there.
    assert n == 2 or (curve <= first * 4 / 3 * (1 + 1e-3)).all()


def test_an_epsilon_of_tiny_rates_is_no_less_than_that_of_the_limit():
    """mu = sqrt(steps) / (n sigma) of a Gaussian mechanism: 4.6e-8 at this delta."""
    run = [Phase(Poisson(10**8, 1), 1000.0, 10**7)]
    assert guarantee(run, 1e-9, "add_remove").epsilon > 4.6e-8


def test_the_smaller_of_two_valid_numbers_is_the_guarantee():
    """PLD's grid costs more than RDP's conversion where there are very many tiny losses."""
    run = [Phase(Poisson(10**5, 1), 2.0, 10**7)]
    found = guarantee(run, 8.4265e-4, "add_remove")
    assert found.accountant == "rdp" and 0.02125 < found.epsilon < 0.034
    assert found.cross_check.startswith("PLD: epsilon 0.04")
    assert guarantee(run, 8.4265e-4, "add_remove", "pld").epsilon > found.epsilon


@pytest.mark.parametrize("batches", [Poisson(1000, 10), FixedSize(1000, 10), FullBatch(1000)])
def test_noise_beyond_all_use_has_an_epsilon(batches):
    for relation in RELATIONS:
        if (batches.name, relation) in ACCOUNTANTS:
            for sigma in (1e-100, 1e-60, 1e12, 1e100):
                epsilon = guarantee([Phase(batches, sigma, 10)], 1e-5, relation).epsilon
                assert epsilon > 1e100 if sigma < 1 else 0 <= epsilon < 1e-6
