"""Releases of clipped means: clip factors, noise, and how several of them compose."""

import math

import numpy as np
import pytest

from dpatlas.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon
from dpatlas.accounting.mean_release import clip_factors, mu_per_use, noise_deviation
from dpatlas.errors import InputError

C, N, MU = 0.7, 300, 0.4


def test_vectors_within_the_bound_are_left_and_others_are_shortened_to_it():
    norms = np.array([0.0, 1e-300, 0.5, C, np.nextafter(C, 1), 1.4, 1e300])
    factors = clip_factors(norms, C)
    np.testing.assert_array_equal(factors[:4], 1)
    np.testing.assert_allclose(factors[4:] * norms[4:], C, rtol=1e-15)


def test_one_release_s_noise_is_its_sensitivity_over_mu():
    """Opposite vectors of norm C in the replaced place: the mean moves by 2 C / n."""
    rest = np.random.default_rng(0).normal(size=(N - 1, 5))
    rest *= clip_factors(np.linalg.norm(rest, axis=1), C)[:, None]
    big = np.array([30.0, 0, -40.0, 0, 0])
    means = []
    for sign in (1, -1):
        clipped = sign * big * clip_factors(np.linalg.norm(big), C)
        means.append((rest.sum(axis=0) + clipped) / N)
    moved = np.linalg.norm(means[0] - means[1])
    assert moved == pytest.approx(2 * C / N, rel=1e-12)
    assert moved / noise_deviation(C, N, MU) == pytest.approx(MU, rel=1e-12)


@pytest.mark.parametrize("releases", [2, 100])
def test_the_squares_of_several_releases_add_up_to_that_of_mu(releases):
    each = (2 * C / N) / noise_deviation(C, N, MU, releases)
    assert math.sqrt(releases) * each == pytest.approx(MU, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.25, 1e-5), (2.0, 1e-5), (8.0, 1e-2)])
def test_a_shared_data_set_halves_mu_squared(epsilon, delta):
    alone, shared = mu_per_use(epsilon, delta), mu_per_use(epsilon, delta, 2)
    assert shared**2 == pytest.approx(alone**2 / 2, rel=1e-12)
    assert gaussian_delta(alone, epsilon) <= delta
    assert gaussian_delta(alone * (1 + 1e-9), epsilon) > delta
    both = math.hypot(shared, shared)
    assert gaussian_epsilon(both, delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_vectors_without_a_finite_norm_count_for_nothing(dtype):
    with np.errstate(all="raise"):
        factors = clip_factors(np.array([[np.inf, np.nan], [0.35, 1.4]], dtype), C)
    np.testing.assert_allclose(factors, [[0, 0], [1, 0.5]], rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: clip_factors(np.ones(2), math.inf), "max_norm: found inf; allowed: a number > 0"),
        (lambda: noise_deviation(-1.0, N, MU), "max_norm: found -1.0"),
        (lambda: noise_deviation(C, 0, MU), "n: found 0; allowed: a whole number >= 1"),
        (lambda: noise_deviation(C, N, 0.0), "mu: found 0.0"),
        (lambda: noise_deviation(C, N, MU, 0), "releases: found 0"),
        (lambda: mu_per_use(1.0, 1.0), "delta: found 1.0"),
        (lambda: mu_per_use(1.0, 1e-5, 0), "uses: found 0"),
    ],
)
def test_bad_settings_are_refused_by_name(call, words):
    with pytest.raises(InputError, match=f"^{words}"):
        call()
