import dataclasses
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from places import put
from scipy import stats
from torch.func import grad, vmap

from dpatlas.base.seeds import Noise
from dpatlas.formulas.kl_privacy.theorems import INITS
from dpatlas.models.mlp import initial_weights
from dpatlas.privacy.kl import (
    RecordGaps,
    loss_and_delta,
    noisy_step,
    record_gaps,
    record_signals,
    signal_changes,
    squared_row_norms,
)

INPUTS, WIDTH, N_TRAIN, N_ADD = 13, 17, 23, 7
NETWORKS = list(itertools.product(INITS, (1, 10), (2, 3, 6)))
EXACT = {"rtol": 1e-10, "atol": 0}


@dataclasses.dataclass
class Problem:
    weights: list[torch.Tensor]
    x: torch.Tensor
    labels: torch.Tensor

    @classmethod
    def random(cls, init, outputs, depth, width=WIDTH, inputs=INPUTS, records=N_TRAIN + N_ADD):
        weights = initial_weights(
            init, inputs, width, depth, outputs, key="test", run=depth, base_seed=1
        )
        draws = np.random.default_rng([outputs, depth])
        return cls(
            [put(torch.from_numpy(weight).double()) for weight in weights],
            put(torch.from_numpy(draws.uniform(-1, 1, (records, inputs)))),
            put(torch.from_numpy(draws.integers(0, max(2, outputs), records))),
        )

    def gaps(self):
        return record_gaps(self.weights, self.x, self.labels, N_TRAIN)

    def record_gradients(self):
        """Every record's gradient by torch.func, flat: (records, parameters)."""
        layers = vmap(grad(_loss), (None, 0, 0))(self.weights, self.x, self.labels)
        return torch.cat([layer.flatten(1) for layer in layers], 1)


def _loss(weights, record, label):
    hidden = record
    for weight in weights[:-1]:
        hidden = torch.relu(weight @ hidden)
    output = weights[-1] @ hidden
    if len(output) == 1:
        return torch.logaddexp(output.new_zeros(1), -(2 * label - 1) * output)[0]
    return F.cross_entropy(output, label)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("init", "outputs", "depth"), NETWORKS)
def test_gaps_and_their_terms_are_those_of_per_record_gradients(init, outputs, depth):
    problem = Problem.random(init, outputs, depth)
    gaps, gradients = problem.gaps(), problem.record_gradients()
    gbar = gradients[:N_TRAIN].mean(0)
    scale = gradients.norm(dim=1) * gbar.norm()
    torch.testing.assert_close(gaps.g_norm2, gradients.square().sum(1), **EXACT)
    assert ((gaps.inner - gradients @ gbar).abs() <= 1e-10 * scale).all()
    torch.testing.assert_close(gaps.gbar_norm2, gbar.square().sum(), **EXACT)
    flat = torch.cat([layer.flatten() for layer in gaps.gradient])
    assert (flat - gbar).norm() <= 1e-10 * gbar.norm()
    expected = vmap(_loss, (None, 0, 0))(problem.weights, problem.x, problem.labels)
    torch.testing.assert_close(gaps.losses, expected, **EXACT)
    # Mean gradients of the neighbouring sets: without each record, and with each of the others.
    total = gradients[:N_TRAIN].sum(0)
    without = (total - gradients[:N_TRAIN]) / (N_TRAIN - 1)
    with_more = (total + gradients[N_TRAIN:]) / (N_TRAIN + 1)
    literal = (torch.cat([without, with_more]) - gbar).square().sum(1)
    torch.testing.assert_close(gaps.squared_gaps(), literal, **EXACT)


def signals(problem):
    return record_signals(problem.weights, problem.x, problem.labels)


# The last is large enough for oneDNN's product routine.
@pytest.mark.parametrize(
    ("network", "sizes"),
    [
        (("he", 1, 6), {"width": 64, "inputs": 100}),
        (("he", 10, 6), {"width": 64, "inputs": 100}),
        (("lecun", 2, 3), {"width": 256, "inputs": 1100, "records": 300}),
    ],
)
def test_float32_agrees_record_by_record_where_the_relu_masks_do(network, sizes):
    problem = Problem.random(*network, **sizes)
    weights = [weight.float() for weight in problem.weights]
    single = Problem(weights, problem.x.float(), problem.labels)
    same = torch.ones(len(problem.x), dtype=torch.bool)
    for exact, rounded in zip(signals(problem), signals(single), strict=True):
        same &= ((exact[0] > 0) == (rounded[0] > 0)).all(1)
    assert same.float().mean() > 0.9
    exact, rounded = (it.gaps().squared_gaps() for it in (problem, single))
    assert rounded.dtype == torch.float64
    torch.testing.assert_close(rounded[same], exact[same], rtol=1e-4, atol=0)


@pytest.mark.parametrize("outputs", [1, 2, 10])
def test_delta_keeps_its_digits_for_a_record_learnt_well(outputs):
    output = torch.full((1, outputs), -20.0)
    output[0, -1] = 0.0 if outputs > 1 else 20.0
    label = torch.tensor([max(outputs - 1, 1)])
    _, single = loss_and_delta(output, label)
    _, double = loss_and_delta(output.double(), label)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=0)
    assert (double != 0).all()


def test_a_network_that_overflowed_says_nan():
    problem = Problem.random("he", 2, 3)
    weights = [1e30 * weight.float() for weight in problem.weights]
    gaps = record_gaps(weights, problem.x.float(), problem.labels, N_TRAIN)
    assert not torch.isfinite(gaps.squared_gaps()).any()


def test_zero_gradients_leave_gaussian_noise_of_variance_two_eta_sigma_squared():
    eta, sigma, size = 0.03, 0.7, 40_000
    weights = [torch.zeros(200, 100), torch.zeros(100, 200)]
    draws = Noise("digest", "keyed").normal(size, repetition=0, step=0, use="step")
    noisy_step(weights, [torch.zeros_like(w) for w in weights], torch.from_numpy(draws), eta, sigma)
    values = torch.cat([weight.flatten() for weight in weights]).double().numpy()
    variance = 2 * eta * sigma**2
    chi2 = (values**2).sum() / variance
    assert 1e-3 < stats.chi2.cdf(chi2, size) < 1 - 1e-3
    assert stats.kstest(values, "norm", args=(0, variance**0.5)).pvalue > 1e-3


def test_noisy_step_descends_the_gradient_and_gives_each_weight_its_own_noise():
    weights = [torch.ones(3, 2), torch.ones(1, 3)]
    gradient = [torch.full((3, 2), 2.0), torch.full((1, 3), -1.0)]
    noise = torch.arange(9.0)
    noisy_step(weights, gradient, noise, eta=0.5, sigma=2.0)
    expected = torch.cat([torch.zeros(6), torch.full((3,), 1.5)]) + 2.0 * noise
    torch.testing.assert_close(torch.cat([weight.flatten() for weight in weights]), expected)


def test_stored_input_norms_change_nothing_and_the_kernel_writes_to_no_input():
    problem = Problem.random("he", 2, 3)
    before = [tensor.clone() for tensor in (*problem.weights, problem.x, problem.labels)]
    inputs = problem.weights, problem.x, problem.labels
    stored = record_gaps(*inputs, N_TRAIN, squared_row_norms(problem.x))
    assert torch.equal(stored.g_norm2, problem.gaps().g_norm2)
    after = [*problem.weights, problem.x, problem.labels]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_identical_records_have_a_gap_of_zero_never_below():
    problem = Problem.random("he", 2, 3)
    same = Problem(
        [weight.float() for weight in problem.weights],
        problem.x[:1].float().expand(N_TRAIN + N_ADD, -1).contiguous(),
        problem.labels[:1].expand(N_TRAIN + N_ADD),
    ).gaps()
    assert (same.squared_gaps() >= 0).all()
    assert (same.squared_gaps() <= 1e-5 * same.gbar_norm2 / N_TRAIN**2).all()
    one = torch.ones(2, dtype=torch.float64)
    rounded_below = RecordGaps([], one, one * (1 + 1e-9), one[0], one, n_train=2)
    assert torch.equal(rounded_below.squared_gaps(), torch.zeros_like(one))


@pytest.mark.parametrize(
    ("outputs", "scale", "tolerance"), [(1, 0.1, 1e-10), (10, 0.1, 1e-10), (2, 1e-6, 1e-6)]
)
def test_signal_changes_are_distances_between_per_record_gradients(outputs, scale, tolerance):
    here = Problem.random("he", outputs, 3)
    moved = [weight * (1 + scale) for weight in here.weights]
    there = Problem(moved, here.x, here.labels)
    literal = (there.record_gradients() - here.record_gradients()).square().sum(1)
    found = signal_changes(signals(here), signals(there))
    torch.testing.assert_close(found, literal, rtol=tolerance, atol=0)
    assert (signal_changes(signals(here), signals(here)) == 0).all()
