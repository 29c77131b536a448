"""lp_fft's small ReLU networks: drift and noise of the integrators against closed forms."""

import math

import numpy as np
import pytest

from dpatlas.errors import InputError
from dpatlas.formulas.lp_fft.alignment import cosine_drift
from dpatlas.formulas.lp_fft.relu import zeroth_order_loss_drift
from dpatlas_workflow.papers.lp_fft.jobs.relu import (
    ReluNet,
    cosine_rates,
    diffusion_losses,
    directions,
    flow,
    labels,
    log_losses,
    velocity,
    zeroth_order_losses,
)


def network(rng, n=6, h=4, d=3):
    y, c = labels(n), labels(h)
    x = y[:, None] * directions(rng, (n,), d, 30)
    return x, y, c, ReluNet(rng.standard_normal(h), c[:, None] * directions(rng, (h,), d, 30))


def test_directions_are_unit_vectors_within_their_angle():
    found = directions(np.random.default_rng(0), (2000,), 4, 30)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    turned = np.rad2deg(np.arccos(found[:, 0]))
    assert 29.5 < turned.max() < 30.001 and turned.min() < 0.5


@pytest.mark.parametrize("phase", ["head", "all"])
def test_velocity_is_minus_the_numerical_gradient(phase):
    x, y, _, net = network(np.random.default_rng(1))

    def loss(v, W):
        return np.exp(log_losses(ReluNet(v, W), x, y)).sum()

    found = velocity(net, x, y, phase)
    for j in range(len(net.v)):
        moved = net.v + 1e-6 * (np.arange(len(net.v)) == j)
        slope = (loss(moved, net.W) - loss(net.v, net.W)) / 1e-6
        assert found.v[j] == pytest.approx(-slope, rel=1e-4)
    bump = np.zeros_like(net.W)
    bump[1, 2] = 1e-6
    slope = (loss(net.v, net.W + bump) - loss(net.v, net.W)) / 1e-6
    expected = 0 if phase == "head" else -slope
    assert found.W[1, 2] == pytest.approx(expected, rel=1e-4)


def test_cosine_rates_are_those_of_the_exact_identity():
    x, y, c, net = network(np.random.default_rng(2))
    losses = np.exp(log_losses(net, x, y))
    expected = cosine_drift(x, y, net.W.T, net.v, losses) / losses.sum()
    np.testing.assert_allclose(cosine_rates(net, x, y, c), expected)


def test_span_of_the_flow_is_the_integral_of_the_loss():
    """One record and feature: v rises by w.x for every unit of the integral."""
    x, y = np.array([[2.0, 0.0]]), np.array([1.0])
    start = ReluNet(np.array([-0.3]), np.array([[0.5, 0.0]]))
    *_, last = flow(start, x, y, "head", 3.0, 7)
    assert last.v[0] == pytest.approx(-0.3 + 3.0)


def test_zeroth_order_loss_without_noise_is_that_of_gradient_flow():
    """One record under LP: dL/dt = -k L^2."""
    x, y = np.array([[2.0, 0.0]]), np.array([1.0])
    net = ReluNet(np.array([0.1]), np.array([[0.5, 0.0]]))
    found = zeroth_order_losses(
        net, x, y, "head", sigma=np.array([[0.0]]), step=0.02, every=50, count=1
    )
    start = math.exp(-0.1)
    assert found[0, 0, 0] == pytest.approx(start / (1 + start), rel=1e-6)


def test_zeroth_order_loss_begins_with_the_drift_of_the_formula():
    x, y, _, net = network(np.random.default_rng(3))
    sigma = np.array([[0.5]])
    found = zeroth_order_losses(net, x, y, "all", sigma=sigma, step=1e-5, every=1, count=1)
    phi = np.maximum(x @ net.W.T, 0)
    gates = (phi > 0) * net.v
    kernel = phi @ phi.T + (gates @ gates.T) * (x @ x.T)
    losses = np.exp(log_losses(net, x, y))
    drift = zeroth_order_loss_drift(losses, y, kernel, 0.5)
    moved = (found[0, 0, 0] - losses[y > 0].sum()) / 1e-5
    assert moved == pytest.approx(drift[y > 0].sum(), rel=1e-3)


def test_a_step_that_is_too_large_is_refused():
    x, y, _, net = network(np.random.default_rng(1))
    wild = ReluNet(-8 * labels(4), net.W)
    with pytest.raises(InputError, match="step"):
        zeroth_order_losses(wild, x, y, "head", sigma=np.array([[1.0]]), step=0.5, every=1, count=4)


def test_diffusion_has_noise_of_variance_sigma2_t():
    """A record far on the right side: no drift, so -log L is normal with that variance."""
    x, y = np.array([[1.0, 0.0]]), np.array([1.0])
    starts = ReluNet(np.full((1, 4000, 1), 30.0), np.array([[[[1.0, 0.0]]]]))
    losses = diffusion_losses(
        starts, x, y, "head", sigma=np.array([[0.7]]), rng=np.random.default_rng(4),
        step=0.1, every=20, count=1,
    )[0, 0, :, 0]  # fmt: skip
    variance = np.log(losses).var(ddof=1)
    assert variance == pytest.approx(0.98, abs=5 * 0.98 * math.sqrt(2 / 4000))
