"""The errata of feature_learning: the printed algorithm is not private, what is run instead is.

Each test can be run alone: `pytest tests/papers/feature_learning/test_feature_errata.py -k cosine`.
"""

import math

import numpy as np
import pytest
from feature_small import MIXED, drawn, with_record

from dpatlas.accounting.gaussian_dp import gaussian_delta
from dpatlas.accounting.mean_release import clip_factors, noise_deviation
from dpatlas.formulas.feature_learning import rates
from dpatlas.formulas.feature_learning.single_index import link
from dpatlas_workflow.papers.feature_learning.jobs import layers
from dpatlas_workflow.papers.feature_learning.jobs.draws import REAL, Records

D, N, Q, EPS, DELTA = 64, 20_000, 2, 2.0, 1e-5
LARGE = 1e9
MU = rates.gaussian_dp_mu(EPS, DELTA)
WIDTH = rates.printed_first_layer_width(D, N, Q, EPS, DELTA)


def neighbours(p):
    """Start, and two data sets of one run that differ in the label of their first record."""
    data = drawn(D, p, N, 1, runs=[0])
    x = data.first.x[0, 0]
    return data.start, [with_record(data.first, 0, x, label) for label in (LARGE, -LARGE)]


@pytest.fixture(scope="module")
def wide():
    """Just above the printed width."""
    return neighbours(math.floor(WIDTH) + 9)


def printed_step(start, records, divisor=1):
    """The sum of unclipped gradients over `divisor`, one step, normalised; before the noise."""
    gradient = N / divisor * layers.first_gradient(start, records, None)
    return layers.stepped(start, gradient, rates.first_layer_rate(N, D, start.p))[0].astype(float)


@pytest.mark.parametrize("divisor", [1, N], ids=["sum-of-algorithm-1", "mean-of-section-3"])
def test_one_record_with_a_large_label_turns_every_neuron_of_the_printed_step_round(wide, divisor):
    start, pair = wide
    first, second = (printed_step(start, records, divisor) for records in pair)
    distances = np.linalg.norm(first - second, axis=0)
    assert start.p > WIDTH and len(distances) == start.p
    np.testing.assert_allclose(distances, 2, atol=1e-3)


def test_the_printed_first_layer_is_not_private_above_its_width(wide):
    """The neighbours' outputs are normal laws whose means are further apart than mu sigma_W."""
    start, pair = wide
    first, second = (printed_step(start, records) for records in pair)
    sigma = rates.printed_first_layer_noise(D, N, Q)
    apart = np.linalg.norm(first - second) / sigma
    assert apart == pytest.approx(rates.printed_first_layer_mu(D, N, Q, start.p), rel=1e-4)
    assert apart > MU
    assert gaussian_delta(apart, EPS) > DELTA
    below = math.floor(WIDTH) - 9
    within = np.linalg.norm((first - second)[:, :below]) / sigma
    assert gaussian_delta(within, EPS) < DELTA


@pytest.mark.parametrize("clip", [0.5, 10.0])
def test_a_clip_of_every_record_does_not_keep_the_printed_step_private(clip):
    """Where all other records are x = 0, the step is one record's clipped gradient.

    Its length is eta_W C_W, that of W_0 about sqrt(p); labels may be any numbers.
    """
    start, (records, _) = neighbours(32)
    others = Records(np.zeros_like(records.x), records.y)
    sides = []
    for label in (LARGE, -LARGE):
        one = with_record(others, 0, records.x[0, 0], label)
        gradient = N * layers.first_gradient(start, one, clip)
        assert np.linalg.norm(gradient) == pytest.approx(clip, rel=0.05)
        sides.append(layers.stepped(start, gradient, rates.first_layer_rate(N, D, 32))[0])
    distances = np.linalg.norm(sides[0] - sides[1], axis=0)
    # 17.7 C_W is the typical length of a neuron's step; a small clip turns some neurons less far.
    assert np.mean(distances > 1.9) > (0.99 if clip > 1 else 0.5)


def test_the_same_neighbours_stay_within_mu_after_the_clipped_release(wide):
    start, pair = wide
    clip = float(np.median(layers.first_norms(start, pair[0])))
    moved = np.subtract(*(layers.first_gradient(start, records, clip) for records in pair))
    apart = np.linalg.norm(moved) / noise_deviation(clip, N, MU)
    assert apart <= MU * (1 + 1e-4)
    # They are the worst there is: the noise is no larger than it has to be.
    assert apart == pytest.approx(MU, rel=1e-4)
    assert gaussian_delta(apart * (1 - 1e-4), EPS) <= DELTA


def test_the_same_neighbours_stay_within_mu_after_the_release_of_a_direction(wide):
    _, pair = wide
    moved = np.subtract(*(layers.mean_direction(records, 3.0) for records in pair))
    assert np.linalg.norm(moved) / noise_deviation(3.0, N, MU) == pytest.approx(MU, rel=1e-4)


def test_two_records_of_the_model_itself_turn_neurons_by_more_than_a_right_angle():
    """Both have y = s(<x, mu>), far out on either side, among few others."""
    n = 200
    data = drawn(D, 32, n, 1, runs=[0])
    steps = []
    for u in (12.0, -12.0):
        label = link(MIXED)(np.array(u))
        records = with_record(data.first, 0, u * data.start.mu[0], label)
        gradient = n * layers.first_gradient(data.start, records, None)
        steps.append(layers.stepped(data.start, gradient, rates.first_layer_rate(n, D, 32)))
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
    sigma, expected = rates.printed_first_layer_noise(D, N, Q), 0.0018
    mu = np.zeros(D)
    mu[0] = 1
    noise = np.random.default_rng(3).normal(size=(D, 4000))
    both = mu[None, :, None] + sigma * np.stack([noise, -noise])
    cosine = np.einsum("d,rdp->rp", mu, layers.normalised(both)).mean()
    assert 1 / (sigma * math.sqrt(D)) == pytest.approx(expected, abs=5e-5)
    assert cosine == pytest.approx(expected, rel=0.05)
    # A hundredth of what chance gives to a single neuron.
    assert cosine < 0.02 * math.sqrt(2 / (math.pi * D))


@pytest.mark.parametrize("eps_b", [0.0, 0.5])
def test_the_printed_noise_outgrows_a_neuron_unless_three_eps_n_exceed_one_and_eps_b(eps_b):
    """Its norm is d^((1 + eps_B - 3 eps_n) / 2) up to a power of log d."""
    ds = [10**k for k in (20, 40, 80)]
    for margin in (-0.9, -0.1, 0.0):
        exponent = (1 + eps_b + margin) / 3
        norms = [rates.printed_noise_norm(d, exponent, Q, eps_b) for d in ds]
        assert norms == sorted(norms) and norms[0] > 1e6
    falling = [rates.printed_noise_norm(d, (1 + eps_b + 0.9) / 3, Q, eps_b) for d in ds]
    assert falling == sorted(falling, reverse=True) and falling[-1] < 1e-20
    n = round(D ** (1 + 3 * 0.3))
    norm = rates.printed_first_layer_noise(D, n, Q, eps_b) * math.sqrt(D)
    assert rates.printed_noise_norm(D, 0.3, Q, eps_b) == pytest.approx(norm, rel=1e-3)


def test_with_the_printed_noise_the_risk_tends_to_that_of_predicting_zero():
    """Along the least n and p that Assumption 2 allows at eps_n = eps_p = .1."""
    ds = [10**k for k in (3, 4, 6, 8)]
    least = [rates.printed_least_risk(d, math.ceil(d**1.3), math.ceil(d**0.1), Q) for d in ds]
    assert least == sorted(least)
    assert least[0] > 0.8 and least[-1] > 0.9999
    # sqrt(p) = 20 columns, of which the noise leaves sqrt(d - p - 1) across, each up to log d.
    noise, slack = rates.printed_first_layer_noise(10_000, 20_000, Q), math.log(10_000)
    most = (20 / noise + 20 + slack) / (math.sqrt(9599) - 20 - slack)
    assert rates.printed_least_risk(10_000, 20_000, 400, Q) == pytest.approx(1 - most**2)
    # The bound says nothing where the columns can hold the direction, or noise is small.
    assert rates.printed_least_risk(64, 20_000, 128, Q) == 0
    assert rates.printed_least_risk(1000, 8000, 100, Q, eps_b=-10.0) == 0


def test_no_read_out_of_noisy_neurons_falls_below_the_least_risk():
    """Every neuron is mu before the noise; regression on W' x, then the best function of that."""
    d, n, p = 1000, 8000, 2
    least = rates.printed_least_risk(d, n, p, Q)
    draws = np.random.default_rng(5)
    weights = rates.printed_first_layer_noise(d, n, Q) * draws.normal(size=(d, p))
    weights[0] += 1
    basis, _ = np.linalg.qr(weights)
    seen = basis[0] @ basis[0]
    assert 0 < seen <= 1 - least
    s = link(MIXED)
    x = draws.normal(size=(40_000, d)).astype(REAL)
    u = x[:, 0].astype(float)
    v = x @ basis @ basis[0] / math.sqrt(seen)
    parts = [seen ** (k / 2) * s.hermite[k] for k in range(3)]
    best = np.polynomial.hermite_e.hermeval(v, parts)
    share = sum(math.factorial(k) * s.hermite[k] ** 2 * seen**k for k in range(3))
    assert np.mean((s(u) - best) ** 2) == pytest.approx(1 - share, rel=0.03)
    assert 1 - share >= least


@pytest.mark.parametrize(("d", "n", "p"), [(16, 736, 25), (64, 4096, 64), (64, N, 128)])
def test_the_printed_rate_of_the_second_layer_diverges_on_neurons_along_the_direction(d, n, p):
    """All else is Assumption 4's, with the clip corrected and without noise.

    The loss has the largest curvature of about .6 p, and descent needs a rate of at most 2 over it.
    """
    data = drawn(d, p, n, 1, runs=[0])
    weights = np.repeat(data.start.mu[:, :, None], p, axis=2)
    phi, y = data.start.features(data.second.x, weights)[0].astype(float), data.second.y[0]
    exponent = rates.eps_n(n, d)
    ridge, rate = rates.penalty(n, d, p), rates.second_layer_rate(n, d, p)
    assert rate == pytest.approx(d**exponent * math.log(d) ** 2 / p, rel=1e-12)
    clip = d**exponent * math.sqrt(p) * math.log(d) ** (Q + 1)
    curvature = 2 * (np.linalg.eigvalsh(phi.T @ phi / n)[-1] + ridge)
    assert rate > 8 * 2 / curvature

    def risk(rate, steps):
        a = np.full(p, p**-0.5)
        for _ in range(steps):
            gradients = 2 * ((phi @ a - y)[:, None] * phi + ridge * a)
            factors = clip_factors(np.linalg.norm(gradients, axis=1), clip)
            a = a - rate * (factors @ gradients) / n
        return np.mean((phi @ a - y) ** 2)

    assert risk(rate, max(2, round(d**exponent))) > 1e4
    assert risk(1 / (p + ridge), 50) < 0.6
