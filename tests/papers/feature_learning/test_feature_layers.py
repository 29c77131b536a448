"""feature_learning's layers: gradients record by record, clips, descent on a, and sensitivities."""

import numpy as np
import pytest
import torch
from feature_small import drawn, with_record

from dpatlas_workflow.papers.feature_learning.jobs import layers as feature_layers
from dpatlas_workflow.papers.feature_learning.jobs.layers import (
    SecondLayer,
    direction_norms,
    first_gradient,
    first_norms,
    mean_direction,
    normalised,
    released_direction,
    released_gradient,
)

DRAWN = drawn()
START, RECORDS = DRAWN.start, DRAWN.first
RUNS, N, D = RECORDS.x.shape
P = START.p
# A clip that leaves some records as they are and shortens others.
CLIP = float(np.median(first_norms(START, RECORDS)))


@pytest.fixture(scope="module")
def explicit():
    """Gradients of every record's loss (f(x) - y)^2 in W by autograd, (runs, n, d, p), double."""
    gradients = np.zeros((RUNS, N, D, P))
    biases, head = torch.from_numpy(START.biases).double(), P**-0.5
    for run, record in np.ndindex(RUNS, N):
        weights = torch.from_numpy(START.weights[run]).double().requires_grad_()
        x = torch.from_numpy(RECORDS.x[run, record]).double()
        with torch.enable_grad():
            output = head * torch.tanh(weights.T @ x + biases[run]).sum()
            loss = (output - float(RECORDS.y[run, record])) ** 2
            gradients[run, record] = torch.autograd.grad(loss, weights)[0].numpy()
    return gradients


def norms_of(matrices):
    return np.sqrt((matrices**2).sum(axis=(2, 3)))


def test_every_record_s_gradient_is_autograd_s_and_clipped_by_itself(explicit):
    norms = norms_of(explicit)
    np.testing.assert_allclose(first_norms(START, RECORDS), norms, rtol=1e-4)
    assert (norms > CLIP).any(axis=1).all() and (norms < CLIP).any(axis=1).all()
    clipped = explicit * np.minimum(1, CLIP / norms)[:, :, None, None]
    for clip, expected in ((None, explicit), (1e9, explicit), (CLIP, clipped)):
        gradient = first_gradient(START, RECORDS, clip)
        np.testing.assert_allclose(gradient, expected.mean(axis=1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("size", "clip"), [(7, CLIP), (39, None)])
def test_blocks_of_records_change_nothing(monkeypatch, size, clip):
    whole = first_gradient(START, RECORDS, clip)
    monkeypatch.setattr(feature_layers, "BLOCK", size)
    np.testing.assert_allclose(first_gradient(START, RECORDS, clip), whole, rtol=1e-4, atol=1e-7)


def test_neurons_of_any_length_are_normalised():
    large = 1e30 * START.weights
    np.testing.assert_allclose(normalised(large), normalised(START.weights), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(normalised(large), axis=1), 1, rtol=1e-6)


def test_the_direction_is_the_mean_of_clipped_y_x():
    x, y = (each.astype(float) for each in (RECORDS.x, RECORDS.y))
    vectors = y[:, :, None] * x
    norms = np.linalg.norm(vectors, axis=2)
    np.testing.assert_allclose(direction_norms(RECORDS), norms, rtol=1e-5)
    np.testing.assert_allclose(mean_direction(RECORDS, 1e9), vectors.mean(axis=1), atol=1e-6)
    clip = float(np.median(norms))
    clipped = vectors * np.minimum(1, clip / norms)[:, :, None]
    np.testing.assert_allclose(mean_direction(RECORDS, clip), clipped.mean(axis=1), atol=1e-6)


def released(records, clip, release):
    if release == "matrix":
        return first_gradient(START, records, clip)[0]
    return mean_direction(records, clip)[0]


@pytest.mark.parametrize("release", ["matrix", "direction"])
def test_one_record_moves_the_clipped_mean_by_at_most_2_c_over_n(release):
    clip, draws = 0.2, np.random.default_rng(0)
    before = released(RECORDS, clip, release)
    for scale in (0.0, 1e-3, 1.0, 30.0, 1e6):
        other = with_record(RECORDS, 3, *(scale * draws.normal(size=size) for size in (D, None)))
        moved = np.linalg.norm(released(other, clip, release) - before)
        assert moved <= 2 * clip / N * (1 + 1e-5)
    x = draws.normal(size=D)
    ends = [released(with_record(RECORDS, 3, x, y), clip, release) for y in (1e6, -1e6)]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(2 * clip / N, rel=1e-4)


def test_a_release_is_the_clipped_mean_with_every_run_s_own_noise():
    asked, scale = [], np.array([1.0, 2.0])[:, None]

    def normal(size, run, step, use):
        asked.append((size, run, step, use))
        return (run + 1) * np.arange(size)

    gradient = released_gradient(START, RECORDS, 0.2, 0.5, normal)
    # Neuron by neuron.
    noise = (0.5 * scale * np.arange(D * P)).reshape(RUNS, P, D).transpose(0, 2, 1)
    np.testing.assert_allclose(gradient, first_gradient(START, RECORDS, 0.2) + noise, rtol=1e-6)
    mean = released_direction(RECORDS, 0.2, 0.5, normal)
    noise = 0.5 * scale * np.arange(D)
    np.testing.assert_allclose(mean, mean_direction(RECORDS, 0.2) + noise, rtol=1e-6)
    uses = ((D * P, "matrix"), (D, "direction"))
    assert asked == [(size, run, 0, use) for size, use in uses for run in range(RUNS)]


def second(penalty=0.5, p=P, n=N, draws=None):
    """A second layer of two runs, in single precision as it is in a job."""
    draws = draws or np.random.default_rng(1)
    phi = np.tanh(draws.normal(size=(2, n, p))).astype(np.float32)
    return SecondLayer(phi, draws.normal(size=(2, n)).astype(np.float32), penalty)


def no_noise(size, *key):
    return np.zeros(size)


def loop(layer, steps, max_norm=np.inf):
    """Gradient descent from 0, one run and one record at a time."""
    heads = []
    for phi, y in zip(layer.phi.astype(float), layer.y.astype(float), strict=True):
        a = np.zeros(layer.p)
        for _ in range(steps):
            gradients = [2 * (row @ a - label) * row for row, label in zip(phi, y, strict=True)]
            clipped = [g * min(1, max_norm / np.linalg.norm(g)) for g in gradients]
            total = np.mean(clipped, axis=0) + 2 * layer.penalty * a
            a = a - total / (layer.p + layer.penalty)
        heads.append(a)
    return np.stack(heads)


def test_descent_is_a_plain_loop_that_clips_every_record_s_gradient_and_counts_those_it_did():
    layer = second()
    np.testing.assert_allclose(layer.descend(25), loop(layer, 25), atol=1e-6)
    clip = float(np.median(layer.norms_at_zero()))
    for max_norm, share in ((1e9, 0), (clip, None), (1e-9, 1)):
        head, clipped = layer.descend_privately(5, max_norm, 0.0, no_noise, "head")
        np.testing.assert_allclose(head, loop(layer, 5, max_norm), atol=1e-5)
        if share is not None:
            np.testing.assert_allclose(clipped, share)
    assert np.abs(loop(layer, 5, clip) - loop(layer, 5)).max() > 1e-3
    _, clipped = layer.descend_privately(1, clip, 0.0, no_noise, "head")
    np.testing.assert_allclose(clipped, (layer.norms_at_zero() > clip).mean(axis=1))


def test_every_step_adds_its_own_noise_of_the_given_deviation():
    layer = SecondLayer(np.zeros((2, N, P), np.float32), np.zeros((2, N), np.float32), 0.0)
    asked = []

    def normal(size, run, step, use):
        asked.append((size, run, step, use))
        return np.full(size, 10.0**step * (run + 1))

    head, _ = layer.descend_privately(3, 1.0, 0.25, normal, "head, x")
    assert asked == [(P, run, step, "head, x") for step in range(3) for run in range(2)]
    np.testing.assert_allclose(head, -layer.rate * 0.25 * 111 * np.array([[1], [2]]) * np.ones(P))


def test_all_iterates_follow_from_the_noisy_means_that_are_seen():
    layer, seen = second(), []
    normal = np.random.default_rng(4).normal
    head, _ = layer.descend_privately(
        3, 0.5, 0.1, lambda size, *key: normal(size=size), "head", see=seen.append
    )
    a = np.zeros((2, P))
    for mean in seen:
        a = a - layer.rate * (mean + 2 * layer.penalty * a)
    assert len(seen) == 3
    np.testing.assert_allclose(head, a, rtol=1e-6)


@pytest.mark.parametrize("penalty", [1e-3, 1.0, 100.0])
def test_the_step_is_stable_for_any_records(penalty):
    """Also where all neurons are nearly saturated alike, of curvature p."""
    draws = np.random.default_rng(2)
    signs = np.sign(draws.normal(size=(2, N, 1)))
    layers = [
        SecondLayer((0.99 * signs * np.ones(P)).astype(np.float32), signs[:, :, 0], penalty),
        second(penalty, draws=draws),
        SecondLayer(np.zeros((2, N, P), np.float32), signs[:, :, 0], penalty),
    ]
    for layer in layers:
        curvature = np.linalg.eigvalsh(layer.moments[0])[:, -1] + penalty
        assert np.all(2 * layer.rate * curvature < 2)
        np.testing.assert_allclose(layer.descend(10_000), layer.ridge(), atol=1e-4)


def test_one_record_moves_a_step_of_the_head_by_at_most_its_sensitivity():
    clip = 0.1
    heads = []
    for label in (50.0, -50.0):
        layer = second()
        layer.y[:, 4] = label
        heads.append(layer.descend_privately(1, clip, 0.0, no_noise, "head")[0] / layer.rate)
    moved = np.linalg.norm(heads[0] - heads[1], axis=1)
    np.testing.assert_allclose(moved, 2 * clip / N, rtol=1e-4)
