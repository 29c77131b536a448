"""Langevin SGD: the printed update, its noise, its projection, its bounded records."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy import stats

from dpatlas.accounting.samplers import Cyclic, FixedSize, FullBatch, Poisson
from dpatlas.base.canonical import canonical_json
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.langevin import Langevin, LangevinRun, bound_records

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


SAMPLERS = [FullBatch(N), FixedSize(N, 7), Poisson(N, 7)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda kind: kind.name)
def test_without_noise_a_step_is_gradient_descent_on_the_regularised_mean_loss(sampler):
    x, labels = data()
    one = run(settings(sampler, sigma=0.0))
    one.weights = torch.randn(CLASSES, D, dtype=torch.float64)
    weights = one.weights.clone().requires_grad_()
    batch = torch.from_numpy(sampler.batch_indices(Noise("digest", "keyed"), 0, 0))
    with torch.enable_grad():
        scores = x[batch] @ weights.T
        fit = torch.nn.functional.cross_entropy(scores, labels[batch], reduction="sum")
        fit = fit / sampler.batch
        (gradient,) = torch.autograd.grad(fit + 0.05 / 2 * weights.square().sum(), weights)
    one.step()
    torch.testing.assert_close(one.weights, (weights - 0.5 * gradient).detach())


def test_start_and_noise_have_the_variances_of_the_algorithm():
    x = torch.zeros(N, 4000, dtype=torch.float64)
    chosen = settings(sigma=0.3, lam=0.02, rates=(0.125,), radius=1e12)
    one = LangevinRun(chosen, x, data()[1], CLASSES, noise=Noise("digest", "keyed"), repetition=0)
    start = one.weights.clone()
    assert stats.kstest(start.flatten() / np.sqrt(2 * 0.3**2 / 0.02), "norm").pvalue > 1e-3
    one.step()
    noise = (one.weights - (1 - 0.125 * 0.02) * start).flatten() / (np.sqrt(2 * 0.125) * 0.3)
    assert stats.kstest(noise, "norm").pvalue > 1e-3


def stored(one: LangevinRun):
    arrays, facts = one.state()
    copied = {name: array.copy() for name, array in arrays.items()}
    return copied, json.loads(canonical_json(facts))


def test_a_run_restored_after_any_step_gives_the_same_bits_and_settings():
    whole = run(settings(FixedSize(N, 7)))
    whole.run()
    first = run(settings(FixedSize(N, 7)))
    for done in range(5):
        if done:
            first.step()
        second = run(settings(FixedSize(N, 7)))
        taken = dataclasses.replace(first.settings, rates=first.settings.rates[:done])
        assert first.settings_run == taken
        second.restore(*stored(first))
        assert torch.equal(second.run(), whole.weights)
        assert second.settings_run == second.settings


OTHERS = {"sigma": 0.5, "lam": 0.2, "radius": 3.0, "rates": (0.1,) * 4}


@pytest.mark.parametrize(
    ("name", "value"), [*OTHERS.items(), ("sampler", FixedSize(N, 6)), ("sampler", Cyclic(N, 7))]
)
def test_a_state_of_other_settings_is_refused(name, value):
    first = run(settings(FixedSize(N, 7)))
    first.step()
    changed = dataclasses.replace(first.settings, **{name: value})
    for other in (run(changed), run(first.settings, 1)):
        with pytest.raises(InputError, match="checkpoint: found a state of another run"):
            other.restore(*stored(first))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: settings(lam=0.0), "lambda: found 0.0; allowed: a number > 0"),
        (lambda: settings(radius=0.0), "radius: found 0.0"),
        (lambda: settings(sigma=-1.0), "sigma: found -1.0"),
        (lambda: settings(rates=(0.1, 0.0)), "step size: found an array with 0.0"),
        (lambda: run(settings(FullBatch(5))), "sampler: found batches of 5"),
        (lambda: bound_records(torch.ones(2, 2), 0), "feature_norm: found 0"),
    ],
)
def test_bad_settings_are_refused_by_name(call, message):
    with pytest.raises(InputError, match=message):
        call()
