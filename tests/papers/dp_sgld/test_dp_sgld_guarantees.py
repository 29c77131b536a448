"""Guarantees of dp_sgld against exact laws, recursions and enumerations."""

import itertools
import math

import numpy as np
import pytest

from dpatlas.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon, gaussian_mu
from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld import guarantees
from dpatlas.formulas.dp_sgld.exact import exact_renyi, one_step_renyi2
from dpatlas.formulas.dp_sgld.theorems import claimed_rdp, claimed_rdp_constant

STEP = dict(eta=0.5, lam=0.1, beta=1.0, sensitivity=0.02, sigma2=1e-3)
RENYI = dict(L=1.5, lam=0.1, sigma2=0.01, eta=0.5)


def test_gaussian_formulas_end_in_limits_and_not_in_nan():
    assert gaussian_delta(1.0, 1e300) == 0
    assert gaussian_delta(1e200, 1.0) == 1
    assert gaussian_epsilon(1e200, 1e-5) == math.inf
    below, above = (gaussian_epsilon(mu, 1e-5) for mu in (9999.9, 10000.1))
    assert below < above < 1.001 * below
    assert 0 < gaussian_mu(1e300, 1e-5) < math.inf


def test_hidden_states_never_cost_more_than_releasing_all():
    K = np.arange(1, 400)
    mu = guarantees.noisy_gd_gdp(**STEP, K=K)
    assert guarantees.cyclic_gd_gdp(**STEP, batches=8, epochs=1) == pytest.approx(mu[0])
    one = 0.5 * 0.02 / math.sqrt(2 * 0.5 * 1e-3)
    assert mu[0] == pytest.approx(one)
    assert np.all(np.diff(mu) >= 0)
    assert np.all(mu <= one * np.sqrt(K) * (1 + 1e-12))
    assert mu[-1] == pytest.approx(one * math.sqrt(1.95 / 0.05), rel=1e-6)
    # Without contraction, eta lam = 1e-14, the bound keeps its digits and all steps compose.
    assert guarantees.noisy_gd_gdp(0.5, 2e-14, 1.0, 0.02, 1e-3, 100) == pytest.approx(
        10 * one, rel=1e-9
    )
    assert guarantees.noisy_gd_gdp_of_steps(np.array([]), 0.1, 1.0, 0.02, 1e-3) == 0


def test_steps_beyond_the_smooth_range_contract_by_the_smoothness():
    """eta beta = 1.9: c = 0.9 is |1 - eta beta|, and lam = 0.1 plays no part."""
    beyond = guarantees.noisy_gd_gdp(1.9, 0.1, 1.0, 0.02, 1e-3, 7)
    one = guarantees.noisy_gd_gdp(1.9, 0.1, 1.0, 0.02, 1e-3, 1)
    assert beyond / one == pytest.approx(math.sqrt((1 - 0.9**7) / (1 + 0.9**7) * 1.9 / 0.1))


def test_steps_that_do_not_contract_have_no_bound():
    with pytest.raises(InputError, match=r"eta: found 2\.5; .*< 2/beta = 2"):
        guarantees.noisy_gd_gdp_of_steps(np.array([0.1, 2.5]), 0.1, 1.0, 0.02, 1e-3)


@pytest.mark.parametrize("eps, delta", [(1.0, 1e-5), (0.1, 1e-6), (8.0, 1e-9)])
def test_repaired_noise_meets_the_target_and_no_less_would(eps, delta):
    setting = {key: STEP[key] for key in ("eta", "lam", "beta", "sensitivity")}
    for calibrated, parameter, length in (
        (guarantees.noisy_gd_sigma2, guarantees.noisy_gd_gdp, dict(K=300)),
        (guarantees.cyclic_gd_sigma2, guarantees.cyclic_gd_gdp, dict(batches=12, epochs=30)),
    ):
        sigma2 = calibrated(eps, delta, **setting, **length)
        mu = parameter(**setting, sigma2=sigma2, **length)
        assert gaussian_epsilon(mu, delta) <= eps * (1 + 1e-9)
        mu = parameter(**setting, sigma2=sigma2 * 0.999, **length)
        assert gaussian_epsilon(mu, delta) > eps


def renyi_given_batches(alpha, L, lam, m, sigma2, eta, drawn):
    """The recursion of Thm 3.2's proof; drawn: by step, whether the batch has the record."""
    divergence = 0.0
    for in_batch in drawn:
        divergence *= math.exp(-lam * eta / 2)
        if in_batch:
            divergence += claimed_rdp(alpha, L, lam, m, sigma2, eta)
    return divergence


@pytest.mark.parametrize("K", [9, 2000])
def test_full_batches_drawn_at_every_step_give_theorem_3_2(K):
    claim = claimed_rdp_constant(3.0, **RENYI, beta=1.0, n=40, K=K)
    assert renyi_given_batches(3.0, 1.5, 0.1, 40, 0.01, 0.5, [True] * K) == pytest.approx(claim)
    for batches in guarantees.BATCHES:
        assert guarantees.conditional_rdp(
            3.0, **RENYI, beta=1.0, n=40, m=40, K=K, batches=batches
        ) == pytest.approx(claim)


def test_cyclic_batches_are_the_recursion_with_the_record_in_each_last_batch():
    drawn = [k % 4 == 2 for k in range(11)]
    expected = renyi_given_batches(3.0, 1.5, 0.1, 10, 0.01, 0.5, drawn)
    divergence = guarantees.conditional_rdp(
        3.0, **RENYI, beta=1.0, n=40, m=10, K=11, batches="cyclic"
    )
    assert divergence == pytest.approx(expected)


def test_random_batches_average_the_recursion_over_what_was_drawn():
    """exp((alpha - 1) R) of the pair (last iterate, batches), all 2^6 patterns one by one."""
    alpha, n, m, K = 1.5, 10, 3, 6
    total = 0.0
    for drawn in itertools.product([False, True], repeat=K):
        divergence = renyi_given_batches(alpha, 1.5, 0.1, m, 0.9, 0.5, drawn)
        chance = math.prod(m / n if hit else 1 - m / n for hit in drawn)
        total += chance * math.exp((alpha - 1) * divergence)
    averaged = guarantees.conditional_rdp(alpha, 1.5, 0.1, 1.0, n, m, 0.9, 0.5, K, "random")
    assert averaged == pytest.approx(math.log(total) / (alpha - 1))


def test_conditional_epsilon_is_the_least_over_orders():
    arguments = dict(L=1.5, lam=0.1, beta=1.0, n=500, m=100, sigma2=1.0, eta=0.5, K=20)
    best = min(
        guarantees.conditional_rdp(float(alpha), **arguments) + math.log(1e5) / (alpha - 1)
        for alpha in range(2, 300)
    )
    assert guarantees.conditional_epsilon(**arguments, delta=1e-5) == pytest.approx(best)


def test_long_runs_are_bounded_from_above_and_closely(monkeypatch):
    arguments = (2.0, 1.5, 0.1, 1.0, 50, 5, 5.0, 0.01, 5000)
    exact = guarantees.conditional_rdp(*arguments)
    monkeypatch.setattr(guarantees, "MAX_BLOCKS", 500)
    assert exact < guarantees.conditional_rdp(*arguments) < 1.02 * exact


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("alpha", [1.5, 8.0])
@pytest.mark.parametrize("m", [1, 10, 30])
def test_exact_divergence_lies_below_the_bound_conditional_on_the_batches(K, alpha, m):
    """In the example where Thm 3.2 fails."""
    exact = exact_renyi(30, m, 0.02, 0.5, K, 1.0, alpha, -1, rest=-1)
    assert exact <= guarantees.conditional_rdp(alpha, 2.0, 1.0, 1.0, 30, m, 0.02, 0.5, K)


def test_divergences_far_below_rounding_are_not_lost():
    """By mpmath with 50 digits: of a sample of 1 % of the records, and of one step."""
    settings = {"L": 0.0001473138315201515, "lam": 319.6487864892394, "beta": 65716.05145490018}
    settings |= {"sigma2": 0.00852844222621127, "eta": 2.5318090136814803e-07, "K": 263}
    found = guarantees.conditional_rdp(1.1732631763614876, n=731146, m=7230, **settings)
    assert found == pytest.approx(7.4813193e-20, rel=1e-6, abs=0)
    found = one_step_renyi2(9487568, 456, 1701.2660870998704, 0.010377673406885463)
    assert found == pytest.approx(3.5528e-22, rel=1e-4, abs=0)
