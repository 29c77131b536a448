"""lp_fft's small networks, linear and of ReLUs: integrators against closed forms and slopes."""

import math

import numpy as np
import pytest

from dpatlas.errors import InputError
from dpatlas.formulas.lp_fft.relu import tangent_kernel, zeroth_order_loss_drift
from dpatlas_workflow.papers.lp_fft.jobs import linear, relu


@pytest.mark.parametrize(("n", "d", "h", "reached", "seen"), [
    (10, 6, 3, 0.2, 0.7), (6, 6, 6, 1.0, 1.0), (8, 8, 3, 0.4, 1.0),
])  # fmt: skip
def test_a_problem_has_the_norms_that_were_asked_for(n, d, h, reached, seen):
    problem = linear.linear_problem(np.random.default_rng(0), n, d, h, reached=reached, seen=seen)
    np.testing.assert_allclose(problem.X.T @ problem.X, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(problem.B @ problem.B.T, np.eye(h), atol=1e-12)
    assert np.sum(problem.Y**2) == pytest.approx(1)
    assert problem.u @ problem.u == pytest.approx(seen)
    assert problem.b @ problem.b == pytest.approx(reached)


@pytest.mark.parametrize("sizes", [(5, 6, 3), (6, 6, 7), (6, 6, 6)])
def test_problems_without_room_are_refused(sizes):
    with pytest.raises(InputError):
        linear.linear_problem(np.random.default_rng(0), *sizes, reached=0.5)


def test_residual_gives_the_gradients_of_the_loss():
    rng = np.random.default_rng(0)
    problem = linear.linear_problem(rng, 8, 6, 3, reached=0.5)
    v, B = rng.standard_normal((1, 3)), rng.standard_normal((1, 3, 6))
    quiet = {"step": 1e-6, "deviations": (0.0, 0.0), "steps": 1, "rng": rng}
    ((moved_v, moved_B),) = linear.fine_tuning(v, B, problem.residual, **quiet)
    fallen = problem.losses(v, B) - problem.losses(moved_v, moved_B)
    squares = np.sum((moved_v - v) ** 2) + np.sum((moved_B - B) ** 2)
    assert fallen[0] == pytest.approx(squares / 1e-6, rel=1e-4)


def test_clipped_gradients_are_the_sum_of_clipped_records():
    rng = np.random.default_rng(0)
    problem = linear.linear_problem(rng, 8, 6, 3, reached=0.5)
    v, B = rng.standard_normal((1, 3)), rng.standard_normal((1, 3, 6))
    head = np.zeros(3)
    for x, y in zip(problem.X, problem.Y, strict=True):
        error = v[0] @ B[0] @ x - y
        parts = error * (B[0] @ x), error * np.outer(v[0], x)
        norm = math.sqrt(sum(np.sum(part**2) for part in parts))
        head += parts[0] * min(1, 0.3 / norm)
    found = B[0] @ problem.clipped_residual(v, B, 0.3)[0]
    np.testing.assert_allclose(found, head)
    loose = problem.clipped_residual(v, B, 1e9)
    np.testing.assert_allclose(loose, problem.residual(v, B), atol=1e-12)


def network(rng, n=6, h=4, d=3):
    y, c = relu.labels(n), relu.labels(h)
    x = y[:, None] * relu.directions(rng, (n,), d, 30)
    net = relu.ReluNet(rng.standard_normal(h), c[:, None] * relu.directions(rng, (h,), d, 30))
    return x, y, c, net


@pytest.mark.parametrize("phase", ["head", "all"])
def test_velocity_is_minus_the_numerical_gradient(phase):
    x, y, _, net = network(np.random.default_rng(1))

    def loss(v, W):
        return np.exp(relu.log_losses(relu.ReluNet(v, W), x, y)).sum()

    found = relu.velocity(net, x, y, phase)
    for j in range(len(net.v)):
        moved = net.v + 1e-6 * (np.arange(len(net.v)) == j)
        slope = (loss(moved, net.W) - loss(net.v, net.W)) / 1e-6
        assert found.v[j] == pytest.approx(-slope, rel=1e-4)
    bump = np.zeros_like(net.W)
    bump[1, 2] = 1e-6
    slope = (loss(net.v, net.W + bump) - loss(net.v, net.W)) / 1e-6
    expected = 0 if phase == "head" else -slope
    assert found.W[1, 2] == pytest.approx(expected, rel=1e-4)


def zeroth_order(net, x, y, phase, sigma, **steps):
    found = relu.zeroth_order_losses(net, x, y, phase, sigma=np.array([[sigma]]), count=1, **steps)
    return found[0, 0, 0]


def test_zeroth_order_losses_are_those_of_gradient_flow_and_begin_with_the_drift_of_the_formula():
    """Without noise, one record under LP: dL/dt = -k L^2."""
    x, y = np.array([[2.0, 0.0]]), np.array([1.0])
    net = relu.ReluNet(np.array([0.1]), np.array([[0.5, 0.0]]))
    found, start = zeroth_order(net, x, y, "head", 0.0, step=0.02, every=50), math.exp(-0.1)
    assert found == pytest.approx(start / (1 + start), rel=1e-6)
    x, y, _, net = network(np.random.default_rng(3))
    losses = np.exp(relu.log_losses(net, x, y))
    kernel = tangent_kernel(x, net.W.T, net.v)
    drift = zeroth_order_loss_drift(losses, y, kernel, 0.5)[y > 0].sum()
    found = zeroth_order(net, x, y, "all", 0.5, step=1e-5, every=1)
    assert (found - losses[y > 0].sum()) / 1e-5 == pytest.approx(drift, rel=1e-3)


def test_a_step_that_is_too_large_is_refused():
    x, y, _, net = network(np.random.default_rng(1))
    wild = relu.ReluNet(-8 * relu.labels(4), net.W)
    with pytest.raises(InputError, match="step"):
        relu.zeroth_order_losses(
            wild, x, y, "head", sigma=np.array([[1.0]]), step=0.5, every=1, count=4
        )


def test_diffusion_has_noise_of_variance_sigma2_t():
    """A record far on the right side: no drift, so -log L is normal with that variance."""
    x, y = np.array([[1.0, 0.0]]), np.array([1.0])
    starts = relu.ReluNet(np.full((1, 4000, 1), 30.0), np.array([[[[1.0, 0.0]]]]))
    losses = relu.diffusion_losses(
        starts, x, y, "head", sigma=np.array([[0.7]]), rng=np.random.default_rng(4),
        step=0.1, every=20, count=1,
    )[0, 0, :, 0]  # fmt: skip
    variance = np.log(losses).var(ddof=1)
    assert variance == pytest.approx(0.98, abs=5 * 0.98 * math.sqrt(2 / 4000))
