"""The errata of lp_fft on ReLU networks: what is printed fails, what we use instead holds.

Closed forms, ordinary differential equations and seeded simulations; each test can be run alone:
`pytest tests/papers/lp_fft/test_lp_fft_errata_relu.py -k theorem_3_4`.
"""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from dpatlas.formulas.lp_fft import alignment, relu


def losses_of(x, y, W, v):
    return np.exp(-y * (np.maximum(x @ W, 0) @ v))


def clustered(rng, n=6, d=5, h=4, spread=0.1, tilt=0.5):
    """Two tight classes about -u and u, and neurons in both cones, tilted away from the means."""
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    u, *others = np.linalg.qr(rng.normal(size=(d, d)))[0]
    x = y[:, None] * u + spread * rng.normal(size=(n, d)) / math.sqrt(d)
    classes = np.where(np.arange(h) % 2, 1.0, -1.0)
    aside = rng.normal(size=(h, d - 1)) @ np.array(others)
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    W = (classes[:, None] * u + tilt * aside).T
    return x, y, W, classes


def train_head(x, y, W, v, t):
    """The head after gradient flow of LP for time t."""
    features = np.maximum(x @ W, 0)
    flow = solve_ivp(lambda _, v: (y * np.exp(-y * (features @ v))) @ features, (0, t), v)
    return flow.y[:, -1]


def full_gradient(x, y, W, v):
    """-grad of the loss in v and W."""
    outputs = x @ W
    pull = y * losses_of(x, y, W, v)
    return pull @ np.maximum(outputs, 0), x.T @ (pull[:, None] * (outputs > 0)) * v


def one_neuron(spread=0.3, ratio=3.0, a=0.7, b=0.1):
    """Two records of class 1 and one of class -1 about w = (1, 0); Assumptions 3.1 and 3.2 hold."""
    x = np.array([[a + spread, -b], [a, ratio * b], [-1.0, -0.1]])
    y, W = np.array([1.0, 1.0, -1.0]), np.array([[1.0], [0.0]])
    assert relu.data_coherence(x, y) > 0
    assert alignment.neuron_classes(x, y, W)[0] == 1
    return x, y, W


def distorts(x, y, W, v):
    return alignment.cosine_drift(x, y, W, v, losses_of(x, y, W, v)).min() < 0


@pytest.mark.parametrize("head_var, probability", [(1e-3, 0.5), (1.0, 0.4999), (100.0, 0.1429)])
def test_theorem_3_3_fails_for_a_head_of_large_variance(head_var, probability):
    """h = 1: only heads just below zero distort, as a function of the head scanned here."""
    world = one_neuron()
    exact = alignment.two_record_distortion_probability(head_var, 0.3, 3.0)
    assert exact == pytest.approx(probability, abs=1e-4)
    edge = -math.log(3) / 0.3
    for v, expected in ((0.99 * edge, True), (-1e-6, True), (1.01 * edge, False), (1e-6, False)):
        assert distorts(*world, np.array([v])) == expected
    draws = math.sqrt(head_var) * np.random.default_rng(33).normal(size=1000)
    found = np.mean([distorts(*world, draws[[i]]) for i in range(len(draws))])
    assert abs(found - exact) < 4 * math.sqrt(exact * (1 - exact) / 1000)
    assert alignment.distortion_probability(1) == 0.5
    assert (abs(found - 0.5) < 0.07) == (head_var <= 1)


def test_theorem_3_3_at_the_variance_and_probability_of_the_erratum():
    assert alignment.two_record_distortion_probability(
        100.0, 0.3, math.exp(0.3 * 3.292)
    ) == pytest.approx(0.129, abs=5e-4)


def test_theorem_3_3_holds_under_what_theorem_b_8_assumes():
    """Records of norm one, and a neuron farther from the mean than any two records are apart."""
    rng, found = np.random.default_rng(38), 0
    for _ in range(300):
        x = np.array([1.0, 0.0, 0.0]) + 0.3 * rng.normal(size=(3, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        W, y = rng.normal(size=(3, 1)), np.ones(3)
        mean = x.sum(axis=0)
        cosine = mean @ W[:, 0] / np.linalg.norm(mean) / np.linalg.norm(W)
        if min((x @ W).min(), relu.data_coherence(x, y)) <= 0 or cosine >= relu.data_coherence(
            x, y
        ):
            continue
        found += 1
        for v in (-30.0, -1.0, 1.0, 30.0):
            assert distorts(x, y, W, np.array([v])) == (v < 0)
    assert found > 50
    # The counter-example does not satisfy it.
    x, y, W = one_neuron()
    own = x[y > 0]
    unit = own / np.linalg.norm(own, axis=1, keepdims=True)
    mean = own.sum(axis=0) / np.linalg.norm(own.sum(axis=0))
    assert mean @ W[:, 0] > unit[0] @ unit[1]


@pytest.mark.parametrize("h", [1, 2, 4])
def test_theorem_3_3_holds_on_tight_clusters_and_small_heads(h):
    rng = np.random.default_rng(h)
    found = []
    for _ in range(500):
        x, y, W, _ = clustered(rng, h=h)
        found.append(distorts(x, y, W, 0.1 * rng.normal(size=h)))
    claimed = alignment.distortion_probability(h)
    assert abs(np.mean(found) - claimed) < 4 * math.sqrt(claimed * (1 - claimed) / 500)


def test_theorem_3_4_has_a_counter_example():
    """A head that is right from the start: the cosine falls at the end of LP, however long it is.

    The record that w fits less well has the larger loss and lies on the wrong side of w.
    """
    x = np.array([[1.0, 0.3], [0.3, -0.1], [-1.0, -0.1]])
    y, W, v = np.array([1.0, 1.0, -1.0]), np.array([[1.0], [0.0]]), np.array([2.0])
    assert relu.data_coherence(x, y) > 0
    assert alignment.neuron_classes(x, y, W)[0] == 1
    for t in (0.0, 0.1, 1.0, 10.0, 100.0):
        probed = train_head(x, y, W, v, t)
        assert probed >= v
        assert distorts(x, y, W, probed)
    # A small step of FFT does move the neuron away from its class's mean.
    mean = x[:2].sum(axis=0) / np.linalg.norm(x[:2].sum(axis=0))
    _, step = full_gradient(x, y, W, v)
    moved = W + 1e-4 * step
    assert mean @ moved / np.linalg.norm(moved) < mean @ W / np.linalg.norm(W)


def test_theorem_3_4_holds_on_tight_clusters():
    """LP first: no neuron is distorted; without it all neurons gain in 2^-4 = 6 % of the runs."""
    rng = np.random.default_rng(34)
    after, at_once = [], []
    for _ in range(200):
        x, y, W, classes = clustered(rng)
        v = rng.normal(size=4)
        at_once.append(not distorts(x, y, W, v))
        v = train_head(x, y, W, v, 50.0)
        assert np.all(classes * v > 0)
        after.append(not distorts(x, y, W, v))
    assert np.mean(after) == 1
    assert np.mean(at_once) == pytest.approx(1 / 16, abs=4 * math.sqrt(15 / 256 / 200))


@pytest.mark.parametrize("sigma", [0.0, 0.3, 1.0])
def test_theorem_4_2_brackets_the_zeroth_order_model(sigma):
    t = np.linspace(0, 3, 31)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, y, W, _ = clustered(rng, spread=0.4)
        losses = losses_of(x, y, W, rng.normal(size=4))
        kernel = relu.tangent_kernel(x, W, np.zeros(4), "head")
        model = solve_ivp(
            lambda _, now, kernel=kernel, y=y: relu.zeroth_order_loss_drift(now, y, kernel, sigma),
            (0, 3),
            losses,
            t_eval=t,
            rtol=1e-8,
            atol=1e-10,
        )
        for label in (-1, 1):
            features = np.maximum(x[y == label] @ W, 0)
            total = model.y[y == label].sum(axis=0)
            lower, upper = relu.lp_relu_loss_bounds(features, total[0], sigma, t)
            assert np.all(lower <= total * (1 + 1e-6))
            assert np.all(total <= upper * (1 + 1e-6))


def test_true_loss_falls_below_the_lower_bound_of_theorem_4_2():
    """One record, one neuron: the bracket is a point, and dL = (sigma^2 / 2 - L) L dt - sigma L dQ.

    L_t = e^(-sigma Q_t) / (1 / L_0 + int_0^t e^(-sigma Q_s) ds), simulated; E L^2 > (E L)^2.
    """
    sigma, t, steps, paths = 1.0, 2.0, 200, 20_000
    lower, upper = relu.lp_relu_loss_bounds(np.ones((1, 1)), 1.0, sigma, t)
    assert lower == pytest.approx(upper, rel=1e-12)
    increments = np.random.default_rng(42).normal(size=(paths, steps)) * math.sqrt(t / steps)
    weights = np.exp(-sigma * np.cumsum(increments, axis=1))
    area = (weights.sum(axis=1) + 0.5 - weights[:, -1] / 2) * t / steps
    loss = weights[:, -1] / (1 + area)
    error = loss.std() / math.sqrt(paths)
    assert loss.mean() + 10 * error < 0.8 * lower


def test_theorem_4_3_brackets_the_zeroth_order_model_for_heads_of_the_right_sign():
    """Balanced classes, all cosines of neurons and records at least mu, losses above C / B."""
    t, sigma, R = np.linspace(0, 0.6, 13), 0.3, 1.0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, y, W, classes = clustered(rng, spread=0.3, tilt=0.2)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        W *= 0.5 / np.linalg.norm(W, axis=0)
        v = classes * 0.5
        cosines = np.abs(x @ W) / 0.5
        mu = min(relu.data_coherence(x, y), cosines.min())
        losses = losses_of(x, y, W, v)
        totals = integrate_fft(x, y, W, v, losses, sigma, t)
        for label in (-1, 1):
            own, neurons = y == label, classes == label
            total = totals[own].sum(axis=0)
            lower, upper = relu.fft_relu_loss_bounds(
                R, mu, v[neurons], W[:, neurons], total[0], sigma, t
            )
            assert np.all(lower <= total * (1 + 1e-6))
            assert np.all(total <= upper * (1 + 1e-6))


def integrate_fft(x, y, W, v, losses, sigma, t):
    """Losses of the zeroth-order model at times t, shape (n, times); W and v follow the flow."""
    (d, h), n = W.shape, len(y)

    def drift(_, state):
        W, v, losses = np.split(state, [d * h, d * h + h])
        W = W.reshape(d, h)
        step_v, step_W = full_gradient(x, y, W, v)
        losses = relu.zeroth_order_loss_drift(losses, y, relu.tangent_kernel(x, W, v), sigma)
        return np.concatenate((step_W.ravel(), step_v, losses))

    start = np.concatenate((W.ravel(), v, losses))
    return solve_ivp(drift, (0, t[-1]), start, t_eval=t, rtol=1e-8, atol=1e-10).y[-n:]


def test_upper_bound_of_theorem_4_3_fails_for_a_head_against_its_class():
    """v = -1, w = x = 1: gradient flow ends in the saddle v = w = 0, where the loss is 1.

    Half of all random heads begin like that; A is not a lower bound on v^2 + w^2.
    """
    x, y, W, v = np.ones((1, 1)), np.ones(1), np.ones((1, 1)), -np.ones(1)
    t = np.array([0.0, 1.0, 5.0])
    total = integrate_fft(x, y, W, v, losses_of(x, y, W, v), 0.0, t)[0]
    _, upper = relu.fft_relu_loss_bounds(1.0, 1.0, v, W, total[0], 0.0, t)
    assert total[0] == pytest.approx(upper[0]) == pytest.approx(math.e)
    assert total[-1] > 1
    assert total[-1] > 8 * upper[-1]


def test_steps_of_theorem_5_1_give_the_inverse_fourth_power_of_the_noise():
    """Time of LP from the paper's lower bound on the loss, over sigma^2; sigma^4 is printed."""
    features = np.array([[1.0, 0.6], [0.8, 0.9]])
    coefficients = dict(L0=2.0, least_feature=0.8, head_var=1.0, delta=0.1)

    def budget(sigma):
        A1, B1, *_ = relu.lp_relu_coefficients(features, sigma)
        return alignment.lp_alignment_time(A1, B1, **coefficients) / sigma**2

    # Where the loss has settled at B1 / A1, as the proof has it from the start.
    assert math.log2(budget(2e3) / budget(1e3)) == pytest.approx(-4, abs=0.2)
    assert math.log2(budget(2e-3) / budget(1e-3)) == pytest.approx(-2, abs=0.01)
    assert alignment.lp_budget_scale(2.0, 0.1) / alignment.lp_budget_scale(
        1.0, 0.1
    ) == pytest.approx(2**-4)
    assert (
        alignment.lp_budget_scale(2.0, 0.1, "paper") / alignment.lp_budget_scale(1.0, 0.1, "paper")
        == 2**4
    )
    sigmas = np.geomspace(1e-2, 1e3, 30)
    assert np.all(np.diff([budget(sigma) for sigma in sigmas]) < 0)


def test_the_share_of_probing_falls_with_noise_and_no_constant_saves_the_printed_law():
    """Of a budget t / sigma^2 for a given time t; the printed law is compared at its best."""
    features = np.array([[1.0, 0.6], [0.8, 0.9]])
    sigmas = np.geomspace(0.1, 20, 12)

    def time(sigma):
        A1, B1, *_ = relu.lp_relu_coefficients(features, sigma)
        return alignment.lp_alignment_time(A1, B1, 2.0, 0.8, 1.0, 0.1)

    times = np.array([time(sigma) for sigma in sigmas])
    needed, whole = times / sigmas**2, 1 / sigmas**2
    assert np.all(np.diff(needed) < 0)
    assert np.all(np.diff(needed / whole) < 0)
    # A constant for which sigma^4 suffices at much noise is too small at little noise.
    printed = alignment.lp_budget_scale(sigmas, 0.1, "paper")
    enough = printed * needed[-1] / printed[-1]
    assert enough[0] < 1e-6 * needed[0]
    # In the gradient flow of Eq. 56 sigma does not occur, and r goes as sigma^-2.
    A1, B1, *_ = relu.lp_relu_coefficients(features, 0.0)
    assert B1 == 0
    without_noise = alignment.lp_alignment_time(A1, B1, 2.0, 0.8, 1.0, 0.1)
    assert np.all(times <= without_noise * (1 + 1e-12))


def test_quality_of_features_is_the_settled_loss_that_turns_the_head():
    features = np.array([[1.0, 0.6], [0.8, 0.9]])
    A1, B1, *_ = relu.lp_relu_coefficients(features, 1.3)
    expected = features.min(axis=0) * (B1 / A1) / (1.3**2 / 2)
    np.testing.assert_allclose(alignment.feature_quality(features), expected, rtol=1e-12)


def test_every_head_is_aligned_after_the_alignment_time():
    """In gradient flow from the worst head that the probability allows."""
    rng = np.random.default_rng(51)
    x, y, W, classes = clustered(rng)
    v = -classes * alignment.head_shift(0.04, 0.05)
    losses = losses_of(x, y, W, v)
    times = []
    for label in (-1, 1):
        features = np.maximum(x[y == label] @ W[:, classes == label], 0)
        A1, *_ = relu.lp_relu_coefficients(features, 0.0)
        total = losses[y == label].sum()
        times.append(alignment.lp_alignment_time(A1, 0.0, total, features.min(), 0.04, 0.05))
    assert np.all(classes * train_head(x, y, W, v, 1.001 * max(times)) > 0)
    assert np.any(classes * train_head(x, y, W, v, 0.3 * min(times)) < 0)
