"""The values of dp-accounting, bit for bit: another version of it that differs is noticed here."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from dpatlas.accounting import accountants
from dpatlas.accounting import guarantees as accounting
from dpatlas.accounting.fixed_size_rdp import LARGEST_EXACT_ORDER, _moments, fixed_size_rdp
from dpatlas.accounting.guarantees import Phase, calibrate, guarantee
from dpatlas.accounting.samplers import FixedSize

LARGEST = LARGEST_EXACT_ORDER
ORDERS = [1.02, 1.9, 2, 2.5, 3, 7.3, 11, 63, 64.5, 128, LARGEST - 0.5, LARGEST]
ORDERS += [LARGEST + 0.5, LARGEST + 1, 1024]


def of_the_package(n: int, batch: int, sigma: float, orders: list[float]) -> np.ndarray:
    accountant = RdpAccountant(orders, dp_accounting.NeighboringRelation.REPLACE_ONE)
    gaussian = dp_accounting.GaussianDpEvent(sigma)
    accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(n, batch, gaussian))
    return accountant.rdp


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("sigma", [1e-160, 1e-3, 0.3, 1.0, 2.37, 20.0, 1e4, 1e8])
def test_every_bit_is_that_of_the_package(sigma):
    for n, batch in [(10**6, 1), (1000, 64), (3, 1), (7, 6), (50, 50)]:
        expected = of_the_package(n, batch, sigma, ORDERS)
        assert fixed_size_rdp(batch / n, sigma, ORDERS).tobytes() == expected.tobytes()


def test_tables_grow_to_the_same_bits_whatever_is_asked_for_first():
    rng = np.random.default_rng(5)
    for sigma in 10 ** rng.uniform(-1, 2, 3):
        orders = [float(order) for order in rng.permutation(200)[:12] + 2]
        expected = of_the_package(400, 25, sigma, orders)
        _moments.cache_clear()
        one_by_one = [fixed_size_rdp(25 / 400, sigma, [order])[0] for order in orders]
        assert np.array(one_by_one).tobytes() == expected.tobytes()
        assert fixed_size_rdp(25 / 400, sigma, orders[::-1]).tobytes() == expected[::-1].tobytes()


@pytest.mark.parametrize("sigma", [1e-170, 1e9, 1e200])
def test_sigmas_that_doubles_do_not_resolve_raise_what_the_package_raises(sigma):
    with pytest.raises((ArithmeticError, ValueError)) as expected:
        of_the_package(10, 1, sigma, [2.0])
    with pytest.raises(expected.type):
        fixed_size_rdp(0.1, sigma, [2.0])


def test_guarantees_and_calibrated_noise_have_the_bits_of_the_package(monkeypatch):
    sampler = FixedSize(1000, 50)

    def results() -> list[object]:
        accountants._release_rdp.cache_clear()
        accounting._accounted.cache_clear()
        two = [Phase(sampler, 4.0, 300), Phase(FixedSize(1000, 1000), 30.0, 20)]
        settings = [([Phase(sampler, 2.0, steps)], 1e-5) for steps in (1, 100, 10_000)]
        found: list[object] = [
            guarantee(*setting, "replace_one") for setting in [*settings, (two, 1e-8)]
        ]
        found.append(
            calibrate(lambda noise: [Phase(sampler, noise, 100)], 1.0, 1e-5, "replace_one")
        )
        return found

    ours = results()
    calls = []

    def package(q: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray:
        calls.append(sigma)
        return of_the_package(1000, round(1000 * q), sigma, list(orders))

    monkeypatch.setattr(accountants, "fixed_size_rdp", package)
    assert results() == ours
    assert calls
