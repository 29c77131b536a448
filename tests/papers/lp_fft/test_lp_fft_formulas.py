"""Formulas of lp_fft: limits, order, agreement with the equations they solve, refusals."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from dpatlas.errors import InputError
from dpatlas.formulas.lp_fft import alignment
from dpatlas.formulas.lp_fft.imbalance import jensen_gap
from dpatlas.formulas.lp_fft.linear import lp_fft_linear_loss_bound, lp_loss
from dpatlas.formulas.lp_fft.relu import (
    FftLowerCoefficients,
    FftUpperCoefficients,
    data_coherence,
    fft_loss_lower,
    fft_loss_upper,
    fft_lower_coefficients,
    fft_upper_coefficients,
    lp_relu_coefficients,
    lp_relu_loss_bound,
    tangent_kernel,
    zeroth_order_loss_drift,
)


def solved(rate, L0, T):
    """L(T) of dL/dt = rate(t, L)."""
    return solve_ivp(rate, (0, T), [L0], rtol=1e-10, atol=1e-13).y[0, -1]


@pytest.mark.parametrize("growth", [0.0, 1e-12, 0.3])
def test_loss_bounds_solve_their_equations(growth):
    L0, A, B, gamma, T = 2.0, 1.5, 0.8, 1.2, 0.9
    relu = solved(lambda _, L: -A * L**2 + growth * L, L0, T)
    assert lp_relu_loss_bound(L0, A, growth, T) == pytest.approx(relu, rel=1e-7)
    upper = solved(lambda _, L: A * (-B * L**2 + growth * L), L0, T)
    assert fft_loss_upper(L0, A, B, growth, T) == pytest.approx(upper, rel=1e-7)
    lower = solved(lambda t, L: A * np.exp(gamma * t) * (-B * L**2 + growth * L), L0, T)
    assert fft_loss_lower(L0, A, B, growth, gamma, T) == pytest.approx(lower, rel=1e-7)
    assert fft_loss_lower(L0, A, B, growth, 0, T) == pytest.approx(upper, rel=1e-7)


def test_fft_bounds_keep_their_limit_at_any_time():
    for T in (1e3, 1e200, 1e308):
        assert fft_loss_lower(2.0, 3.0, 2.0, 0.3, 4.0, T) == pytest.approx(0.15)
        assert fft_loss_upper(2.0, 3.0, 0.25, 0.2, T) == pytest.approx(0.8)
    assert fft_loss_lower(2.0, 3.0, 2.0, 0.0, 4.0, 1e3) == 0
    # Without a pull only the noise acts.
    assert fft_loss_upper(2.0, 3.0, 0.0, 0.2, 1.0) == pytest.approx(2 * math.exp(0.6))
    assert fft_loss_upper(2.0, 3.0, 0.0, 0.2, 1e9) == math.inf


def test_coefficients_are_those_of_equation_21_and_of_theorem_4_3():
    found = lp_relu_coefficients(np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 0.0]]), 2.0)
    expected = (9 + 4, 2 / (1 / 5 + 1 / 10), 1 + 1, 2 * math.sqrt(25 + 100))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    dead = lp_relu_coefficients(np.array([[1.0, 2.0], [0.0, 0.0]]), 2.0)
    assert dead.B1 == dead.A2 == 0
    v, W = np.array([0.5, -1.0]), np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0]])
    lower = fft_lower_coefficients(2.0, 0.5, 7.0, 3.0, 0.3)
    assert lower == FftLowerCoefficients(7.0, 8.0, pytest.approx(0.225), 12.0)
    upper = fft_upper_coefficients(2.0, 0.5, v, W, 0.3)
    assert upper == FftUpperCoefficients(pytest.approx(8.25), 1.0, pytest.approx(0.18))


def test_tangent_kernel_is_that_of_finite_differences():
    rng = np.random.default_rng(1)
    x, W, v = rng.normal(size=(5, 3)), rng.normal(size=(3, 4)), rng.normal(size=4)

    def outputs(parameters):
        return np.maximum(x @ parameters[4:].reshape(3, 4), 0) @ parameters[:4]

    here = np.concatenate((v, W.ravel()))
    steps = 1e-6 * np.eye(len(here))
    jacobian = np.stack([(outputs(here + s) - outputs(here - s)) / 2e-6 for s in steps], axis=1)
    np.testing.assert_allclose(tangent_kernel(x, W, v), jacobian @ jacobian.T, atol=1e-7)
    head = jacobian[:, :4]
    np.testing.assert_allclose(tangent_kernel(x, W, v, "head"), head @ head.T, atol=1e-7)


def test_zeroth_order_drift_is_the_ito_drift_of_the_losses():
    """Gradient flow's part and sigma^2 / 2 times the trace of the Hessian, for LP."""
    rng = np.random.default_rng(2)
    features, y = rng.uniform(0, 1, (4, 3)), np.array([1.0, -1.0, 1.0, -1.0])
    v, sigma, step = rng.normal(size=3), 0.7, 1e-4

    def losses(v):
        return np.exp(-y * (features @ v))

    gradients = np.stack(
        [(losses(v + s) - losses(v - s)) / (2 * step) for s in step * np.eye(3)], axis=1
    )
    second = sum(
        (losses(v + s) + losses(v - s) - 2 * losses(v)) / step**2 for s in step * np.eye(3)
    )
    expected = -gradients @ gradients.sum(axis=0) + sigma**2 / 2 * second
    found = zeroth_order_loss_drift(losses(v), y, features @ features.T, sigma)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_cosine_drift_is_the_slope_of_the_cosine_along_gradient_flow():
    x = np.array([[1.0, 0.3, 0.1], [0.8, -0.1, 0.2], [-1.0, 0.2, 0.0], [-0.9, -0.3, 0.2]])
    y = np.array([1.0, 1.0, -1.0, -1.0])
    W, v = np.array([[1.0, -1.2, 0.7], [0.2, 0.1, -0.3], [0.3, 0.1, 0.4]]), np.array([0.5, 0.3, -1])
    classes = alignment.neuron_classes(x, y, W)
    np.testing.assert_array_equal(classes, [1, -1, 1])
    losses = np.exp(-y * (np.maximum(x @ W, 0) @ v))
    velocity = x.T @ ((y * losses)[:, None] * (x @ W > 0)) * v
    means = np.array([x[y == label].sum(axis=0) for label in classes])
    means /= np.linalg.norm(means, axis=1, keepdims=True)

    def cosines(W):
        return np.sum(means * W.T, axis=1) / np.linalg.norm(W, axis=0)

    slopes = (cosines(W + 1e-6 * velocity) - cosines(W - 1e-6 * velocity)) / 2e-6
    np.testing.assert_allclose(alignment.cosine_drift(x, y, W, v, losses), slopes, atol=1e-8)


def test_coherence_is_the_least_signed_cosine():
    x, y = np.array([[2.0, 0.0], [1.0, 1.0], [-1.0, 0.0]]), np.array([1.0, 1.0, -1.0])
    assert data_coherence(x, y) == pytest.approx(math.sqrt(0.5))
    assert data_coherence(x, -y) == pytest.approx(math.sqrt(0.5))
    assert data_coherence(x, np.array([1.0, -1.0, -1.0])) < 0


def test_bound_on_lp_fft_begins_where_lp_ended_and_takes_the_head_of_then():
    setting = dict(h=3, head_var=2.0, b_norm2=0.8, y_norm2=1.0, xty_norm=1.0, sigma2=0.1, d=4)
    start = lp_loss(0.7, 1.0, 3, 2.0, 0.8, 0.1)
    assert lp_fft_linear_loss_bound(0.7, 0.0, **setting) == pytest.approx(start, rel=1e-12)
    printed = lp_fft_linear_loss_bound(0.7, 0.5, **setting, convention="paper")
    # The printed head is larger, so its rate is and its limit is lower.
    assert printed < lp_fft_linear_loss_bound(0.7, 0.5, **setting)


def test_alignment_time_is_continuous_in_the_noise_and_may_be_infinite():
    arguments = dict(A1=1.5, L0=2.0, least_feature=0.7, head_var=1.0, delta=0.1)
    without = alignment.lp_alignment_time(B1=0.0, **arguments)
    assert alignment.lp_alignment_time(B1=1e-12, **arguments) == pytest.approx(without, rel=1e-6)
    far = {**arguments, "head_var": 1e6}
    assert alignment.lp_alignment_time(B1=0.0, **far) == math.inf
    settled = 1.5 / 0.7 * math.sqrt(2e6 * math.log(20)) / 0.4
    assert alignment.lp_alignment_time(B1=0.4, **far) == pytest.approx(settled, rel=1e-2)
    near, over = (
        alignment.lp_alignment_time(
            B1=0.4, A1=a, L0=2.0, least_feature=1.0, head_var=1 / math.log(400), delta=0.1
        )
        for a in (699.9, 700.1)
    )
    assert 0 < over - near < 1e-2 * near


X, W, Y = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[1.0], [0.0]]), np.array([1.0, -1.0])


@pytest.mark.parametrize(
    ("refused", "call"),
    [
        ("features: found an array of shape", lambda: lp_relu_coefficients(np.ones(3), 1.0)),
        ("y: found labels", lambda: data_coherence(X, np.array([0.0, 1.0]))),
        ("y: found an array of shape", lambda: data_coherence(X, np.ones(3))),
        ("v: found an array", lambda: alignment.cosine_drift(X, Y, W, np.ones(2), np.ones(2))),
        ("losses: found an", lambda: alignment.cosine_drift(X, Y, W, np.ones(1), np.ones(3))),
        ("W: found neuron 0", lambda: alignment.cosine_drift(X, Y, 0 * W, np.ones(1), np.ones(2))),
        ("eigenvalues: found no negative", lambda: jensen_gap(np.ones(3))),
        ("features: found a record", lambda: alignment.feature_quality(W)),
    ],
)
def test_bad_arrays_are_refused_by_name(refused, call):
    with pytest.raises(InputError, match=f"^{refused}"):
        call()
