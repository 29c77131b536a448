"""The errata of feature_learning: the printed algorithm is not private, what is run instead is.

Each test can be run alone: `pytest tests/papers/feature_learning/test_feature_errata.py -k cosine`.
"""

import math

import numpy as np
import pytest
from feature_small import MIXED, drawn, with_record

from dpatlas.papers.feature_learning.formulas.rates import (
    first_layer_rate,
    gaussian_dp_mu,
    printed_first_layer_mu,
    printed_first_layer_noise,
    printed_first_layer_width,
)
from dpatlas.papers.feature_learning.formulas.single_index import link
from dpatlas.papers.feature_learning.jobs.layers import (
    first_gradient,
    first_norms,
    mean_direction,
    normalised,
    stepped,
)
from dpatlas.privacy.gaussian_dp import gaussian_delta
from dpatlas.privacy.mean_release import clip_factors, noise_deviation

D, N, Q, EPS, DELTA = 64, 20_000, 2, 2.0, 1e-5
LARGE = 1e9
MU = gaussian_dp_mu(EPS, DELTA)
WIDTH = printed_first_layer_width(D, N, Q, EPS, DELTA)


def neighbours(p):
    """Start, and two data sets of one run that differ in the label of their first record."""
    data = drawn(D, p, N, 1, runs=[0])
    x = data.first.x[0, 0]
    return data.start, [with_record(data.first, 0, x, label) for label in (LARGE, -LARGE)]


@pytest.fixture(scope="module")
def wide():
    """Just above the printed width."""
    return neighbours(math.floor(WIDTH) + 9)


def printed_step(start, records):
    """The sum of unclipped gradients, one step, normalised: Algorithm 1 before its noise."""
    gradient = N * first_gradient(start, records, None)
    return stepped(start, gradient, first_layer_rate(N, D, start.p))[0].astype(float)


def test_one_record_with_a_large_label_turns_every_neuron_of_the_printed_step_round(wide):
    start, pair = wide
    first, second = (printed_step(start, records) for records in pair)
    distances = np.linalg.norm(first - second, axis=0)
    assert start.p > WIDTH and len(distances) == start.p
    np.testing.assert_allclose(distances, 2, atol=1e-3)


def test_the_printed_first_layer_is_not_private_above_its_width(wide):
    """The neighbours' outputs are normal laws whose means are further apart than mu sigma_W."""
    start, pair = wide
    first, second = (printed_step(start, records) for records in pair)
    sigma = printed_first_layer_noise(D, N, Q)
    apart = np.linalg.norm(first - second) / sigma
    assert apart == pytest.approx(printed_first_layer_mu(D, N, Q, start.p), rel=1e-4)
    assert apart > MU
    assert gaussian_delta(apart, EPS) > DELTA
    below = math.floor(WIDTH) - 9
    within = np.linalg.norm((first - second)[:, :below]) / sigma
    assert gaussian_delta(within, EPS) < DELTA


def test_the_same_neighbours_stay_within_mu_after_the_clipped_release(wide):
    start, pair = wide
    clip = float(np.median(first_norms(start, pair[0])))
    moved = np.subtract(*(first_gradient(start, records, clip) for records in pair))
    apart = np.linalg.norm(moved) / noise_deviation(clip, N, MU)
    assert apart <= MU * (1 + 1e-4)
    # They are the worst there is: the noise is no larger than it has to be.
    assert apart == pytest.approx(MU, rel=1e-4)
    assert gaussian_delta(apart * (1 - 1e-4), EPS) <= DELTA


def test_the_same_neighbours_stay_within_mu_after_the_release_of_a_direction(wide):
    _, pair = wide
    moved = np.subtract(*(mean_direction(records, 3.0) for records in pair))
    assert np.linalg.norm(moved) / noise_deviation(3.0, N, MU) == pytest.approx(MU, rel=1e-4)


def test_two_records_of_the_model_itself_turn_neurons_by_more_than_a_right_angle():
    """Both have y = s(<x, mu>), far out on either side, among few others."""
    n = 200
    data = drawn(D, 32, n, 1, runs=[0])
    steps = []
    for u in (12.0, -12.0):
        label = link(MIXED)(np.array(u))
        records = with_record(data.first, 0, u * data.start.mu[0], label)
        gradient = n * first_gradient(data.start, records, None)
        steps.append(stepped(data.start, gradient, first_layer_rate(n, D, 32)))
    distances = np.linalg.norm(steps[0] - steps[1], axis=1)
    assert distances.max() > math.sqrt(2)


def test_the_printed_clip_bounds_no_norm():
    """max(1, ||g|| / C) lengthens what is too long; min(1, C / ||g||) shortens it to C."""
    C, norms = 0.5, np.array([0.1, 0.5, 0.6, 3.0, 1e3])
    printed = norms * np.maximum(1, norms / C)
    assert np.all(printed[norms > C] > norms[norms > C])
    assert printed.max() > 1e6 * C
    used = norms * clip_factors(norms, C)
    assert np.all(used <= C * (1 + 1e-15))
    np.testing.assert_array_equal(used[norms <= C], norms[norms <= C])


def test_the_printed_noise_leaves_a_cosine_of_two_in_a_thousand():
    """feat-5, of neurons that had learned mu exactly; noise and its opposite are taken together."""
    sigma, expected = printed_first_layer_noise(D, N, Q), 0.0018
    mu = np.zeros(D)
    mu[0] = 1
    noise = np.random.default_rng(3).normal(size=(D, 4000))
    both = mu[None, :, None] + sigma * np.stack([noise, -noise])
    cosine = np.einsum("d,rdp->rp", mu, normalised(both)).mean()
    assert 1 / (sigma * math.sqrt(D)) == pytest.approx(expected, abs=5e-5)
    assert cosine == pytest.approx(expected, rel=0.05)
    # A hundredth of what chance gives to a single neuron.
    assert cosine < 0.02 * math.sqrt(2 / (math.pi * D))
