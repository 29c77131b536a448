"""The errata of kl_privacy: what is printed fails, what we use instead holds.

Everything is closed form, quadrature or a seeded simulation of a second, so that anyone who
doubts an erratum can run it alone:
`pytest tests/papers/kl_privacy/test_kl_privacy_errata.py -k labels`.
Those on networks at initialisation are in test_kl_privacy_errata_ntk.py.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, logsumexp, softmax

from dpatlas.formulas.kl_privacy import theorems


def gaussian_kl(mean, covariance, other_mean, other_covariance):
    """KL(N(mean, covariance) || N(other_mean, other_covariance))."""
    gap = other_mean - mean
    trace = np.trace(np.linalg.solve(other_covariance, covariance))
    log_ratio = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return (trace + gap @ np.linalg.solve(other_covariance, gap) - len(mean) + log_ratio) / 2


def trajectory_law(x, y, eta, sigma2, steps):
    """Joint normal law of W_0 .. W_K for noisy gradient descent on (1/n) sum (x_i w - y_i)^2 / 2.

    W_0 is standard normal. Returns the mean, shape ((K+1) p,), and the covariance.
    """
    n, p = x.shape
    contraction, noise = np.eye(p) - eta * x.T @ x / n, 2 * eta * sigma2 * np.eye(p)
    means, blocks = [np.zeros(p)], {(0, 0): np.eye(p)}
    for k in range(steps):
        means.append(contraction @ means[k] + eta * x.T @ y / n)
        for j in range(k + 1):
            blocks[k + 1, j] = contraction @ blocks[k, j]
            blocks[j, k + 1] = blocks[k + 1, j].T
        blocks[k + 1, k + 1] = contraction @ blocks[k, k] @ contraction.T + noise
    size = range(steps + 1)
    return np.concatenate(means), np.block([[blocks[i, j] for j in size] for i in size])


def expected_products(x, y, mean, covariance):
    """E <g_z, g_z'> of the records' gradients g_z = x_z (x_z w - y_z), w normal, shape (n, n)."""
    residuals = x @ mean - y
    return (x @ x.T) * (np.outer(residuals, residuals) + x @ covariance @ x.T)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("relation", ["remove", "add"])
def test_kl_of_a_trajectory_is_half_of_what_is_printed(relation, seed):
    """Eqs. 6, 74, 77: 1 / (4 sigma2), not 1 / (2 sigma2), by the exact normal law of a trajectory.

    The neighbours differ in their Hessian, so the gradient gap is random, and its expectation
    under the law of D is taken exactly.
    """
    rng = np.random.default_rng(seed)
    n, p, steps, eta, sigma2 = 5, 2, 4, 0.3, 0.05
    x, y = rng.normal(size=(n + 1, p)), rng.normal(size=n + 1)
    # The last record is the one that differs.
    held = n if relation == "add" else n + 1
    other = n + 1 if relation == "add" else n
    mean, covariance = trajectory_law(x[:held], y[:held], eta, sigma2, steps)
    exact = gaussian_kl(mean, covariance, *trajectory_law(x[:other], y[:other], eta, sigma2, steps))
    sums = {"exact": 0.0, "paper": 0.0}
    for k in range(steps):
        at = slice(k * p, (k + 1) * p)
        products = expected_products(x, y, mean[at], covariance[at, at])
        delta_norm2 = theorems.neighbour_gap(
            relation,
            held,
            g_norm2=products[-1, -1],
            gbar_norm2=products[:held, :held].mean(),
            inner=products[-1, :held].mean(),
        )
        for convention in sums:
            sums[convention] += theorems.kl_step(eta, sigma2, delta_norm2, convention)
    assert sums["exact"] == pytest.approx(exact, rel=1e-8)
    assert sums["paper"] == pytest.approx(2 * exact, rel=1e-8)


def test_kl_of_a_trajectory_with_a_constant_gap_is_half_of_what_is_printed():
    """One label exchanged: equal Hessians, and every step adds the same KL."""
    rng = np.random.default_rng(7)
    n, p, steps, eta, sigma2 = 5, 2, 4, 0.3, 0.05
    x, y = rng.normal(size=(n, p)), rng.normal(size=n)
    other = y + np.array([0, 0, 0, 0, 1.5])
    exact = gaussian_kl(
        *trajectory_law(x, y, eta, sigma2, steps), *trajectory_law(x, other, eta, sigma2, steps)
    )
    delta_norm2 = np.sum((1.5 * x[-1] / n) ** 2)
    assert steps * theorems.kl_step(eta, sigma2, delta_norm2) == pytest.approx(exact, rel=1e-8)
    assert steps * theorems.kl_step(eta, sigma2, delta_norm2, "paper") == pytest.approx(
        2 * exact, rel=1e-8
    )


def printed_loss(f, y):
    """Cross-entropy below Eq. 1."""
    return -np.dot(y, f - logsumexp(f))


def loss_behind_the_gradient(f, y):
    """The loss whose gradient is softmax(f) - y, as used in the proof of Theorem 4.1."""
    return logsumexp(f) - np.dot(y, f)


@pytest.mark.parametrize("o", [2, 3, 4])
def test_labels_of_plus_and_minus_one_leave_the_loss_unbounded_below(o):
    """Along the label, or along one coordinate where all labels are -1."""
    for label in itertools.product([-1, 1], repeat=o):
        y = np.array(label)
        if -1 in label:
            line = y if 1 in label else np.eye(o)[0]
            values = [printed_loss(t * line, y) for t in (1e1, 1e2, 1e3)]
            assert values[2] < values[1] < values[0]
            assert values[2] < -900
        assert loss_behind_the_gradient(1e3 * y, y) < -900 * (o - 1)


@pytest.mark.parametrize("o", [2, 3, 4])
def test_one_hot_labels_keep_the_loss_at_zero_or_above_with_gradient_p_minus_y(o):
    rng = np.random.default_rng(o)
    for y in np.eye(o):
        f = 20 * rng.normal(size=(500, o))
        assert all(printed_loss(row, y) >= 0 for row in f)
        f = rng.normal(size=o)
        steps = 1e-6 * np.eye(o)
        slope = [(printed_loss(f + h, y) - printed_loss(f - h, y)) / 2e-6 for h in steps]
        np.testing.assert_allclose(slope, softmax(f) - y, atol=1e-8)


@pytest.mark.parametrize("o", [2, 3, 10])
def test_residual_of_the_softmax_has_a_squared_norm_of_up_to_two(o):
    """Near 2 for a sure and wrong prediction, never above; one output keeps its slope below 1."""
    sure = 20 * np.eye(o)[0]
    assert np.sum((softmax(sure) - np.eye(o)[1]) ** 2) == pytest.approx(2, rel=1e-6)
    for f in 5 * np.random.default_rng(o).normal(size=(500, o)):
        assert np.sum((softmax(f) - np.eye(o)[1]) ** 2) <= 2


def test_a_records_gradient_exceeds_the_output_gradients_in_the_proof_of_theorem_4_1():
    """|J^T (p - y)|^2 <= |J|_F^2 is the step in the proof; 2 |J|_F^2 is what holds."""
    gradient = np.array([3.0, -1.0, 2.0])
    jacobian, wrong = np.stack([gradient, -gradient]), softmax([20.0, 0.0]) - [0, 1]
    squared, norm2 = np.sum((jacobian.T @ wrong) ** 2), np.sum(jacobian**2)
    assert squared == pytest.approx(2 * norm2, rel=1e-6)
    rng = np.random.default_rng(41)
    for _ in range(500):
        o, parameters = rng.integers(2, 6, 2)
        jacobian, label = rng.normal(size=(o, parameters)), rng.integers(o)
        residual = softmax(5 * rng.normal(size=o)) - np.eye(o)[label]
        assert np.sum((jacobian.T @ residual) ** 2) <= 2 * np.sum(jacobian**2)


@pytest.mark.parametrize("beta, c, distance", [(1.0, 1e-3, 2.0), (1e-3, 1.0, 2.0)])
def test_gap_of_two_moving_gradients_exceeds_the_printed_eq_21(beta, c, distance):
    """Two records' gradients on one trajectory: zero at w = 0, they move apart by max(c, beta |w|).

    Each keeps to the lemma's assumption, and their gap moves by twice as much.
    """
    shift = 0.999 * max(c, beta * distance)
    gap_start, gap = 0.0, 2 * shift
    movement = beta**2 * distance**2 + c**2
    assert gap**2 > 2 * gap_start**2 + 2 * movement
    assert gap**2 <= 2 * gap_start**2 + 8 * movement


def logistic_gradient(w, x):
    """Gradient in w of log(1 + exp(-w x)), the loss of a network of Eq. 2 with L = 1, label 1."""
    return -x * expit(-(w @ x))


def test_eq_21_fails_for_a_network_without_a_hidden_layer():
    """Two inputs almost opposite; their gradients go from 0 to -x and -x', c apart from 0 each."""
    d = 2
    c, beta = math.sqrt(d), 1e-6
    x, other = (math.sqrt(d) * np.array([side, 0.1]) / math.hypot(1, 0.1) for side in (1, -1))
    start = np.array([0.0, 500.0])
    moved = [logistic_gradient(-start, z) - logistic_gradient(start, z) for z in (x, other)]
    gap_start, gap = (
        logistic_gradient(w, x) - logistic_gradient(w, other) for w in (start, -start)
    )
    # The assumption of the lemma, for these weights and for all: slopes stay between 0 and 1.
    assert max(np.linalg.norm(move) for move in moved) <= c * (1 + 1e-12)
    movement = beta**2 * np.sum((2 * start) ** 2) + c**2
    assert gap @ gap > 1.9 * (2 * gap_start @ gap_start + 2 * movement)
    assert gap @ gap <= 2 * gap_start @ gap_start + 8 * movement


@pytest.mark.parametrize("size", [1e1, 1e3, 1e5])
def test_with_a_hidden_layer_a_small_change_moves_the_gradient_by_any_amount(size):
    """f = v relu(u) at u = size: v goes from 0 to 1 / size, its slope by more than size / 5."""
    before, after = (-size * expit(-v * size) for v in (0.0, 1 / size))
    assert abs(after - before) > size / 5


def test_printed_lemma_3_2_is_below_the_true_integral():
    """Records with gradients k w, -k w; the first is exchanged for one with gradient -k w.

    On D the gradients cancel, so W_t is Brownian, E W_t^2 = v + 2 sigma^2 t; the gap is k w.
    """
    beta, c, n, sigma2, T, v = 1.0, 1e-4, 2, 0.5, 0.05, 1e-6
    k = 0.999 * beta
    true = k**2 * (v * T + sigma2 * T**2)
    arguments = dict(T=T, beta=beta, c=c, n=n, gdiff0=k**2 * v, g0=0.0, sigma2=sigma2, rank=1)
    assert theorems.kl_drift_integral(**arguments, convention="paper") < 0.6 * true
    assert theorems.kl_drift_integral(**arguments, convention="exact") > true


def test_printed_lemma_3_2_can_be_below_the_true_divergence():
    """Though it divides by 2 sigma^2, not 4: where the gap begins at c / 2 and jumps to 2.5 c.

    Data sets of one record, with gradients 0 and -a in |w| <= r, and c and -a - c outside.
    """
    a, c, r, sigma2, T, steps = 0.5, 0.999, 1e-3, 1.0, 1.0, 1000
    draws, eta = np.random.default_rng(43), T / steps
    w, true = np.zeros(400), 0.0
    for _ in range(steps):
        outside = np.abs(w) > r
        true += eta * np.mean((a + 2 * c * outside) ** 2) / (4 * sigma2)
        w = w - eta * c * outside + math.sqrt(2 * eta * sigma2) * draws.normal(size=w.shape)
    arguments = dict(T=T, beta=1e-6, c=1.0, n=1, gdiff0=a**2, g0=0.0, sigma2=sigma2, rank=1)
    printed = theorems.kl_drift_integral(**arguments, convention="paper") / (2 * sigma2)
    assert (true, printed) == pytest.approx((1.56, 1.25), abs=0.01)
    assert theorems.kl_drift_integral(**arguments, convention="exact") / (4 * sigma2) > true


slopes = st.floats(-1, 1)
records = st.lists(st.tuples(slopes, st.floats(-3, 3)), min_size=1, max_size=5)


@given(
    records=records,
    other=st.tuples(slopes, st.floats(-3, 3)),
    beta=st.floats(0.05, 3),
    start=st.floats(-2, 2),
    sigma2=st.floats(1e-3, 2),
    T=st.floats(0.01, 1.5),
)
def test_our_lemma_3_2_is_above_the_true_integral(records, other, beta, start, sigma2, T):
    """For any affine gradients in one dimension: W_t is an Ornstein-Uhlenbeck process."""
    n = len(records)
    slope, shift = (np.array(column) for column in zip(*records, strict=True))
    slope, other = beta * slope, (beta * other[0], other[1])
    a, b = slope.mean(), shift.mean()
    nodes, weights = np.polynomial.legendre.leggauss(30)
    t = T * (nodes + 1) / 2

    def integrated(rate):
        """int_0^t exp(-rate s) ds."""
        return t if abs(rate) < 1e-9 else -np.expm1(-rate * t) / rate

    mean = start * np.exp(-a * t) - b * integrated(a)
    second_moment = mean**2 + 2 * sigma2 * integrated(2 * a)
    gap_slope, gap_shift = (slope[0] - other[0]) / n, (shift[0] - other[1]) / n
    expected_gap2 = gap_slope**2 * second_moment + 2 * gap_slope * gap_shift * mean + gap_shift**2
    bound = theorems.kl_drift_integral(
        T=T,
        beta=beta,
        c=0.0,
        n=n,
        gdiff0=(gap_slope * start + gap_shift) ** 2,
        g0=(a * start + b) ** 2,
        sigma2=sigma2,
        rank=1,
    )
    assert bound >= T / 2 * (weights @ expected_gap2) * (1 - 1e-9)


def opposite_labels_loss(w):
    """Mean logistic loss of two records with feature 1 and labels 1, -1, less its minimum."""
    size = np.abs(w) / 2
    return size + np.log1p(np.exp(-2 * size)) - math.log(2)


def stationary_mean(function, sigma2):
    """Expectation under the limit of Langevin diffusion, density exp(-loss / sigma2)."""
    top = 40 * max(sigma2, math.sqrt(sigma2))
    corner = [math.sqrt(sigma2)]

    def integral(weight):
        return quad(
            lambda w: weight(w) * np.exp(-opposite_labels_loss(w) / sigma2),
            0,
            top,
            points=corner,
            epsabs=0,
            epsrel=1e-10,
            limit=500,
        )[0]

    return integral(function) / integral(lambda w: 1.0)


@pytest.mark.parametrize("sigma2", [1e-3, 0.05, 1.0, 50.0])
def test_ito_correction_in_eq_49_is_twice_the_printed_one(sigma2):
    """In the stationary law 0 = d/dt E W^2 = -2 E[W L'(W)] + correction, rank 1."""
    correction = 2 * stationary_mean(lambda w: w * np.tanh(w / 2) / 2, sigma2)
    assert correction == pytest.approx(2 * sigma2, rel=1e-6)


@pytest.mark.parametrize("sigma2", [1e-3, 0.05, 1.0, 50.0])
def test_mean_excess_risk_along_the_path_exceeds_half_sigma2_rank(sigma2):
    """What Eqs. 48 to 51 bound: from the stationary law it stays, while R / (2T) vanishes."""
    excess = stationary_mean(opposite_labels_loss, sigma2)
    start2 = stationary_mean(lambda w: w**2, sigma2)
    arguments = dict(alpha=0.0, R=start2, T=1e5 * start2 / sigma2**2, sigma2=sigma2, rank=1)
    assert excess > theorems.excess_risk_averaged_iterate(**arguments, convention="paper")
    assert excess < theorems.excess_risk_averaged_iterate(**arguments, convention="exact")
    if sigma2 == 0.05:
        assert excess == pytest.approx(0.5125 * sigma2, rel=1e-4)


def test_excess_risk_of_the_averaged_iterate_exceeds_the_printed_lemma_6_1():
    """From the minimiser itself (alpha = R = 0), large noise, where the loss is nearly |w| / 2.

    Time T = 5 in units of 4 sigma2, the relaxation time; the mean is taken by the trapezium rule.
    """
    rng = np.random.default_rng(61)
    sigma2, runs, steps, units = 400.0, 40_000, 500, 5.0
    step = units * 4 * sigma2 / steps
    w, total = np.zeros(runs), np.zeros(runs)
    for _ in range(steps):
        before = w
        noise = rng.standard_normal(runs)
        w = w - step * np.tanh(w / 2) / 2 + math.sqrt(2 * step * sigma2) * noise
        total += (before + w) / 2
    excess = opposite_labels_loss(total / steps)
    error = excess.std() / math.sqrt(runs)
    arguments = dict(alpha=0.0, R=0.0, T=steps * step, sigma2=sigma2, rank=1)
    printed = theorems.excess_risk_averaged_iterate(**arguments, convention="paper")
    assert excess.mean() > printed + 5 * error
    assert excess.mean() < theorems.excess_risk_averaged_iterate(**arguments, convention="exact")
