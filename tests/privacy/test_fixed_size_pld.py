"""Losses of batches without replacement, against exact laws and limits on both sides."""

import math

import pytest
from scipy.stats import norm

from dpatlas.accounting.accountants import Mechanism, pld_epsilon, rdp_epsilon
from dpatlas.accounting.fixed_size_pld import fixed_size_losses
from dpatlas.accounting.gaussian_dp import amplified, gaussian_epsilon
from dpatlas.accounting.samplers import FixedSize, Poisson

RUNS = [(1000, 50, 1.0, 200), (60000, 256, 2.2, 2000), (1251, 2, 0.64, 500), (100, 60, 5.0, 40)]
DELTA = 1e-5


def epsilon(n, batch, sigma, steps, delta=DELTA):
    return pld_epsilon([Mechanism(FixedSize(n, batch), sigma, steps)], delta, "replace_one")


@pytest.mark.parametrize(("n", "batch", "sigma"), [(10, 3, 1.0), (1000, 10, 2.0), (50, 50, 4.0)])
def test_one_step_is_the_amplified_gaussian_mechanism(n, batch, sigma):
    """For such profiles the bound is an equality of the pair: its inverse is known."""
    q = batch / n
    exact = float(amplified(gaussian_epsilon(2 / sigma, DELTA / q), q))
    assert exact * (1 - 1e-9) <= epsilon(n, batch, sigma, 1) <= exact * 1.002


def test_its_profile_is_that_of_the_theorem_on_both_sides_of_zero():
    q, mu, interval = 0.2, 1.5, 1e-3
    losses = fixed_size_losses(q, mu, interval)
    for eps in (0.0, 0.1, 0.5, 2.0):
        at = math.log1p(math.expm1(eps) / q)
        gaussian = norm.cdf(mu / 2 - at / mu) - math.exp(at) * norm.cdf(-mu / 2 - at / mu)
        assert losses.get_delta_for_epsilon(eps) == pytest.approx(q * gaussian, rel=1e-6)
        mirrored = 1 - math.exp(-eps) + math.exp(-eps) * q * gaussian
        assert losses.get_delta_for_epsilon(-eps) == pytest.approx(mirrored, rel=1e-6)


@pytest.mark.parametrize("run", RUNS)
def test_it_lies_between_a_pair_of_data_sets_and_the_bound_by_rdp(run):
    """The pair: all records at -C but one, which is at C or at -C; its law is a Poisson batch's."""
    n, batch, sigma, steps = run
    pair = pld_epsilon([Mechanism(Poisson(n, batch), sigma / 2, steps)], DELTA, "add_remove")
    by_rdp, _ = rdp_epsilon([Mechanism(FixedSize(n, batch), sigma, steps)], DELTA, "replace_one")
    assert pair * (1 - 1e-3) <= epsilon(*run) <= by_rdp


def test_a_batch_of_all_records_is_the_gaussian_mechanism():
    exact = gaussian_epsilon(2 / 8 * math.sqrt(30), DELTA)
    assert exact * (1 - 1e-9) <= epsilon(40, 40, 8.0, 30) <= exact * 1.005


def test_a_share_too_small_for_delta_costs_nothing():
    """The record is drawn with probability 5 q < delta at all."""
    assert epsilon(16_292_258, 166, 0.4336, 5, 0.0242) == 0


def test_phases_of_several_noises_compose():
    both = [Mechanism(FixedSize(1000, 50), sigma, 100) for sigma in (1.0, 3.0)]
    together = pld_epsilon(both, DELTA, "replace_one")
    assert epsilon(1000, 50, 1.0, 100) < together < epsilon(1000, 50, 1.0, 200)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.3])
def test_where_e_to_the_epsilon_overflows_nothing_is_said_and_the_bound_holds(sigma):
    """One step alone costs hundreds; of thirty, a pair of data sets has an epsilon of thousands."""
    by_rdp, _ = rdp_epsilon([Mechanism(FixedSize(22500, 128), sigma, 30)], DELTA, "replace_one")
    assert epsilon(22500, 128, sigma, 1) < epsilon(22500, 128, sigma, 30) <= by_rdp
