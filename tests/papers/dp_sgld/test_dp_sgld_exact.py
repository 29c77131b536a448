"""The exact law in one dimension against enumeration, simulation, recursions and closed forms."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import norm

from dpatlas.formulas.dp_sgld import exact as dp_sgld_exact
from dpatlas.formulas.dp_sgld.exact import (
    Grid,
    Law,
    Neighbours,
    batch_means,
    exact_delta,
    exact_epsilon,
    exact_renyi,
    one_step_renyi2,
)

EXAMPLE = dict(n=100, m=1, sigma2=0.02, eta=0.5, radius=1.0, x_prime=0)


@pytest.mark.parametrize("m", [1, 2, 4, 7])
@pytest.mark.parametrize("records", [{1.0: 3, 0.0: 4}, {1.0: 2, -1.0: 2, 0.5: 3}, {0.25: 7}])
def test_batch_means_count_all_batches(records, m):
    values = [value for value, count in records.items() for _ in range(count)]
    batches = list(itertools.combinations(values, m))
    counts = Counter(round(sum(batch) / m, 9) for batch in batches)
    law = {round(mean, 9): chance for mean, chance in batch_means(records, m).items()}
    assert law == pytest.approx({mean: count / len(batches) for mean, count in counts.items()})


@pytest.mark.parametrize("k", [1, 2, 6])
def test_law_is_that_of_a_simulation_of_algorithm_1(k):
    """Distribution function at nine points and both atoms, a third of the mass on the ends."""
    rng = np.random.default_rng(k)
    values, m, sigma2, eta, radius = np.array([1.0] * 3 + [-1.0] * 2), 2, 0.1, 0.6, 0.5
    setting = {"sigma2": sigma2, "eta": eta, "radius": radius}
    exact = Law(batch_means({1.0: 3, -1.0: 2}, m), **setting, reading=Grid.of(radius, 100))
    masses = np.exp(exact.log_masses(k))
    assert masses.sum() == pytest.approx(1, abs=1e-12)

    runs = 100_000
    theta = np.clip(rng.normal(scale=math.sqrt(2 * sigma2), size=runs), -radius, radius)
    for _ in range(k):
        batch = rng.permuted(np.tile(values, (runs, 1)), axis=1)[:, :m].mean(axis=1)
        noise = math.sqrt(2 * eta * sigma2) * rng.standard_normal(runs)
        theta = np.clip((1 - eta) * theta + eta * batch + noise, -radius, radius)
    edges = np.linspace(-radius, radius, 9)
    inner = np.exp(exact.log_between(k, edges))
    assert inner.sum() + masses[0] + masses[-1] == pytest.approx(1, abs=1e-12)
    assert masses[0] + masses[-1] > 0.3
    expected = np.concatenate((masses[:1], inner, masses[-1:]))
    ends = [np.sum(theta == -radius), *np.histogram(theta[abs(theta) < radius], edges)[0]]
    simulated = np.array([*ends, np.sum(theta == radius)]) / runs
    error = np.sqrt(expected * (1 - expected) / runs)
    assert np.all(np.abs(simulated - expected) < 5 * error)


def test_one_step_without_projection_is_the_closed_form():
    """(1 - q) N(0, s^2) + q N(D, s^2) against N(0, s^2) crosses e^eps once."""
    closed = one_step_renyi2(100, 1, 0.02, 0.5)
    assert closed == pytest.approx(0.3478, abs=1e-4)
    whole_line = {**EXAMPLE, "radius": 4.0}
    assert exact_renyi(**whole_line, K=1, alpha=2.0) == pytest.approx(closed, rel=1e-9)
    assert one_step_renyi2(100, 100, 0.02, 0.5) == pytest.approx((0.5 / 100) ** 2 / 0.03)
    q, distance, s = 0.01, 0.5, math.sqrt(0.03)
    for eps in (0.01, 1.0, 5.0, 25.0):
        ratio = (math.exp(eps) - 1 + q) / q
        crossing = distance / 2 + s**2 / distance * math.log(ratio)
        hit, missed = norm.sf((crossing - distance) / s), norm.sf(crossing / s)
        expected = (1 - q) * missed + q * hit - math.exp(eps) * missed
        delta = exact_delta(**whole_line, K=1, eps=eps)
        assert delta == pytest.approx(expected, rel=1e-6, abs=0)


@pytest.mark.parametrize(
    "setting",
    [
        EXAMPLE,
        {**EXAMPLE, "m": 100},
        dict(n=10, m=4, sigma2=0.004, eta=0.9, radius=1.0, x=0.5, x_prime=-1, rest=1),
    ],
)
def test_twice_the_nodes_change_nothing(setting, monkeypatch):
    pairs = [Neighbours(**setting)]
    for name in ("STATE_NODES", "READING_NODES", "MIXTURE_NODES"):
        monkeypatch.setattr(dp_sgld_exact, name, 2 * getattr(dp_sgld_exact, name))
    pairs.append(Neighbours(**setting))
    for k in (1, 4):
        for alpha in (1.3, 2.0, 64.5):
            coarse, fine = (pair.renyi(k, alpha) for pair in pairs)
            assert coarse == pytest.approx(fine, rel=1e-9)
        for eps in (0.001, 1.0):
            coarse, fine = (pair.delta(k, eps) for pair in pairs)
            assert coarse == pytest.approx(fine, rel=1e-5, abs=1e-15)


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_exact_epsilon_inverts_exact_delta(delta):
    eps = exact_epsilon(**EXAMPLE, K=3, delta=delta)
    assert exact_delta(**EXAMPLE, K=3, eps=eps) == pytest.approx(delta, rel=1e-6)
    assert exact_epsilon(**EXAMPLE, K=3, delta=0.5) == 0


def test_batches_of_a_million_are_counted_at_once():
    law = batch_means({0.0: 10**9 - 1, 1.0: 1}, 10**6)
    assert law == pytest.approx({0.0: 0.999, 1e-6: 0.001}, rel=1e-5)
