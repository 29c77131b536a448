"""Langevin SGD: the printed update, its noise, its projection, its bounded records."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy import stats

from dpatlas.core.canonical import canonical_json
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.langevin import Langevin, LangevinRun, bound_records
from dpatlas.privacy.samplers import Cyclic, FixedSize, FullBatch

N, D, CLASSES = 20, 6, 3


def data():
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(N, D, generator=draws, dtype=torch.float64)
    return bound_records(x, 1.0).x, torch.randint(0, CLASSES, (N,), generator=draws)


def settings(sampler=FullBatch(N), **changes) -> Langevin:  # noqa: B008  frozen
    given = {"sigma": 0.1, "lam": 0.05, "radius": 1e6, "rates": (0.5,) * 4}
    return Langevin(sampler, **{**given, **changes})


def run(chosen: Langevin, repetition: int = 0) -> LangevinRun:
    return LangevinRun(
        chosen, *data(), CLASSES, noise=Noise("digest", "keyed"), repetition=repetition
    )


def loss(weights, x, labels, lam):
    fit = torch.nn.functional.cross_entropy(x @ weights.T, labels)
    return fit + lam / 2 * weights.square().sum()


def test_without_noise_a_step_is_gradient_descent_on_the_regularised_mean_loss():
    x, labels = data()
    one = run(settings(sigma=0.0))
    one.weights = torch.randn(CLASSES, D, dtype=torch.float64)
    weights = one.weights.clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss(weights, x, labels, 0.05), weights)
    one.step()
    torch.testing.assert_close(one.weights, (weights - 0.5 * gradient).detach())


def test_a_mini_batch_step_is_the_mean_over_its_records():
    x, labels = data()
    sampler = FixedSize(N, 7)
    one = run(settings(sampler, sigma=0.0, lam=1e-9))
    batch = torch.from_numpy(sampler.batch_indices(Noise("digest", "keyed"), 0, 0))
    weights = one.weights.clone().requires_grad_()
    with torch.enable_grad():
        fit = torch.nn.functional.cross_entropy(x[batch] @ weights.T, labels[batch])
        (gradient,) = torch.autograd.grad(fit, weights)
    one.step()
    torch.testing.assert_close(one.weights, -0.5 * gradient)


def test_the_noise_of_a_step_has_variance_two_eta_sigma_squared():
    x = torch.zeros(N, 4000, dtype=torch.float64)
    chosen = settings(sigma=0.3, lam=1e-12, rates=(0.125,), radius=1e12)
    one = LangevinRun(chosen, x, data()[1], CLASSES, noise=Noise("digest", "keyed"), repetition=0)
    before = one.weights.clone()
    one.step()
    moved = (one.weights - before).flatten().numpy() / (np.sqrt(2 * 0.125) * 0.3)
    assert stats.kstest(moved, "norm").pvalue > 1e-3


def test_the_start_has_variance_two_sigma_squared_over_lambda():
    x = torch.zeros(N, 4000, dtype=torch.float64)
    chosen = settings(sigma=0.3, lam=0.02, radius=1e9)
    one = LangevinRun(chosen, x, data()[1], CLASSES, noise=Noise("digest", "keyed"), repetition=0)
    assert stats.kstest(one.weights.flatten() / np.sqrt(2 * 0.09 / 0.02), "norm").pvalue > 1e-3


def test_every_iterate_lies_in_the_ball():
    one = run(settings(sigma=2.0, radius=0.7))
    assert one.weights.norm() <= 0.7 * (1 + 1e-12)
    for _ in range(4):
        one.step()
        assert abs(float(one.weights.norm()) - 0.7) < 1e-9


def test_replacing_a_record_moves_the_noise_free_step_by_at_most_its_sensitivity():
    x, labels = data()
    moved = []
    for sign in (1, -1):
        other = x.clone()
        other[0] = sign * torch.nn.functional.normalize(x[0], dim=0)
        one = LangevinRun(
            settings(sigma=0.0), other, labels, CLASSES, noise=Noise("d", "keyed"), repetition=0
        )
        one.weights = torch.full((CLASSES, D), 0.3, dtype=torch.float64)
        one.step()
        moved.append(one.weights)
    assert (moved[0] - moved[1]).norm() <= 0.5 * 2 * np.sqrt(2) / N * (1 + 1e-12)


def test_records_beyond_the_declared_norm_are_scaled_down_and_counted():
    x = torch.tensor([[3.0, 4.0], [0.3, 0.4], [torch.nan, 1.0], [0.0, 0.0], [torch.inf, 0.0]])
    found = bound_records(x, 1.0)
    expected = torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(found.x, expected)
    assert found.scaled_down == 3
    assert bound_records(found.x, 1.0).scaled_down == 0


def test_a_run_that_goes_on_from_its_weights_gives_the_same_bits():
    sampler = FixedSize(N, 7)
    whole = run(settings(sampler)).run()
    for done in range(5):
        first = run(settings(sampler))
        for _ in range(done):
            first.step()
        second = run(settings(sampler))
        second.weights, second.steps_done = first.weights.clone(), done
        assert torch.equal(second.run(), whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lam": 0.0}, "lambda: found 0.0; allowed: a number > 0"),
        ({"radius": 0.0}, "radius: found 0.0"),
        ({"sigma": -1.0}, "sigma: found -1.0"),
        ({"rates": (0.1, 0.0)}, "step size: found an array with 0.0"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        settings(**changes)


def test_a_sampler_of_other_records_is_refused():
    with pytest.raises(InputError, match="sampler: found batches of 5"):
        run(settings(FullBatch(5)))
    with pytest.raises(InputError, match="feature_norm: found 0"):
        bound_records(torch.ones(2, 2), 0)


def test_settings_run_have_the_steps_that_were_taken():
    run = small_run()
    assert run.settings_run.rates == ()
    run.step()
    assert run.settings_run == dataclasses.replace(run.settings, rates=run.settings.rates[:1])
    run.run()
    assert run.settings_run == run.settings


@pytest.mark.parametrize(
    "changes",
    [
        {"sigma": 0.5},
        {"lam": 0.2},
        {"radius": 3.0},
        {"rates": (0.1,) * 4},
        {"sampler": FixedSize(8, 3)},
        {"sampler": Cyclic(8, 2)},
    ],
)
def test_a_state_of_other_settings_is_refused(changes):
    first = small_run()
    first.step()
    arrays, facts = first.state()
    stored = arrays, json.loads(canonical_json(facts))
    again = small_run()
    again.restore(*stored)
    assert again.steps_done == 1
    with pytest.raises(InputError, match="checkpoint: found a state of another run"):
        small_run(**changes).restore(*stored)
    with pytest.raises(InputError, match="checkpoint: found a state of another run"):
        small_run(repetition=1).restore(*stored)


def small_run(repetition=0, **changes):
    settings = Langevin(FixedSize(8, 2), 1.0, 0.1, 2.0, (0.2,) * 3)
    x, labels = torch.eye(8), torch.arange(8) % 3
    given = {"noise": Noise("spec"), "repetition": repetition}
    return LangevinRun(dataclasses.replace(settings, **changes), x, labels, 3, **given)
