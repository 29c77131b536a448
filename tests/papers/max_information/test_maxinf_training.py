"""Posteriors: objectives and their slopes, one step by hand, resuming, and what diverges."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from small_jobs import labelled

from dpatlas.core.seeds import Noise
from dpatlas.models.mean_field import MeanField, flat_values, initial_network
from dpatlas.models.mean_field_passes import outputs
from dpatlas.papers.max_information.formulas.certificates import kl_inverse
from dpatlas.papers.max_information.jobs.posteriors import (
    PosteriorTraining,
    TrainingSettings,
    best_weight,
    bounded_cross_entropy,
    flambda,
    fquad,
)
from dpatlas.papers.max_information.records.certified import Objective

N, EXTRA, TAU = 24, 3.0, 0.3


def settings(**changes):
    given = {"objective": "fclassic", "loss": "per-class", "lr": 0.1, "momentum": 0.95}
    given |= {"batch": 8, "epochs": 3, "kl_penalty": 0.1}
    return TrainingSettings(**{**given, **changes})


def training(repetition=0, noise="spec", name="mlp", n=N, **changes):
    arrays = labelled({"train": n}, margin=4)
    x, labels = (torch.from_numpy(arrays[f"{part}_train"]) for part in "xy")
    options = {"widths": [6]} if name == "mlp" else {}
    shape = (1, 4, 4) if name == "mlp" else (1, 8, 8)
    if name != "mlp":
        x = x.repeat(1, 4)
    keys = {"key": "max_information", "run": 0, "base_seed": 0}
    network = initial_network(name, shape, 3, **options, **keys)
    return PosteriorTraining(
        network,
        flat_values(network),
        TAU,
        x,
        labels,
        settings(**changes),
        extra=EXTRA,
        noise=Noise(noise, "keyed"),
        repetition=repetition,
    )


@pytest.mark.parametrize("objective", get_args(Objective))
@pytest.mark.parametrize("risk", [0.02, 0.4, 0.97])
@pytest.mark.parametrize("kl", [0.0, 3.0, 60.0])
def test_slopes_are_the_derivatives_of_the_objective(objective, risk, kl):
    chosen = settings(objective=objective, loss="bounded")

    def value(risk, kl):
        return chosen.slopes(risk, kl, EXTRA, 500, 0.7).value

    found, small = chosen.slopes(risk, kl, EXTRA, 500, 0.7), 1e-5
    by_risk = (value(risk + small, kl) - value(risk - small, kl)) / (2 * small)
    by_kl = (value(risk, kl + small) - value(risk, kl - small)) / (2 * small)
    assert found.risk == pytest.approx(by_risk, rel=1e-4)
    assert found.kl == pytest.approx(by_kl, rel=1e-4)


def test_every_bound_lies_above_the_inverse_it_relaxes():
    """kl^-1 < fquad < fclassic in part of the range, and each of them holds."""
    for risk in (0.01, 0.2, 0.6):
        for c in (0.005, 0.05):
            exact = float(kl_inverse(risk, 2 * c))
            for objective in ("fquad", "fclassic", "flambda", "fkl"):
                chosen = settings(objective=objective, loss="bounded")
                assert chosen.slopes(risk, 2 * c * 100 - EXTRA, EXTRA, 100, 1.0).value >= exact


def test_flambda_at_its_best_weight_is_fquad_and_least_there():
    for risk, c in ((0.05, 0.01), (0.5, 0.2), (0.9, 1.0)):
        weight = best_weight(risk, c)
        assert 0 < weight < 2
        found = flambda(risk, c, 100, weight)
        reference = fquad(risk, c, 100)
        assert found.value == pytest.approx(reference.value, rel=1e-12)
        assert found.kl == pytest.approx(reference.kl, rel=1e-9)
        for other in (0.9 * weight, 1.1 * weight):
            assert flambda(risk, c, 100, other).value > found.value


def test_the_bounded_loss_lies_between_0_and_1_and_the_other_is_1_for_a_guess():
    labels = torch.tensor([0, 1, 2])
    wrong = torch.eye(3).roll(1, 1) * 100
    assert bounded_cross_entropy(wrong, labels).item() == pytest.approx(1.0)
    assert bounded_cross_entropy(torch.eye(3) * 100, labels).item() == pytest.approx(0.0)
    assert bounded_cross_entropy(torch.zeros(3, 3), labels, "per-class").item() == pytest.approx(1)
    ratio = math.log(1e5) / math.log(3)
    assert bounded_cross_entropy(wrong, labels, "per-class").item() == pytest.approx(ratio)


@pytest.mark.parametrize("name", ["mlp", "bayes-cnn9"])
@pytest.mark.parametrize("objective", ["fquad", "bbb"])
def test_steps_descend_the_whole_objective_with_momentum(name, objective):
    """Against autograd through softplus, KL and objective at once."""
    one = training(name=name, objective=objective)
    one.posterior.mean.add_(0.01)
    velocities = [0.0, 0.0]
    for step in range(2):
        before = [flat.clone().requires_grad_() for flat in (one.posterior.mean, one.posterior.rho)]
        batch = one.sampler.batch_indices(one.noise, 0, step)
        noise = one._normals(len(batch))
        with torch.enable_grad():
            mean, rho = before
            scale = torch.nn.functional.softplus(rho)
            law = MeanField(one.network, mean, rho)
            x, labels = one.x[batch], one.labels[batch]
            output = outputs(one.network, law.named(mean), law.named(scale), x, noise)
            risk = bounded_cross_entropy(output, labels, "per-class")
            ratio = scale / TAU
            kl = ((ratio**2 - 1) / 2 - ratio.log() + (mean - one.centre) ** 2 / (2 * TAU**2)).sum()
            if objective == "bbb":
                whole = risk + 0.1 * kl / N
            else:
                c = (kl + EXTRA) / (2 * N)
                whole = ((risk + c).sqrt() + c.sqrt()) ** 2
            gradients = torch.autograd.grad(whole, before)
        one.step()
        velocities = [0.95 * v + g for v, g in zip(velocities, gradients, strict=True)]
        after = (one.posterior.mean, one.posterior.rho)
        for old, velocity, new in zip(before, velocities, after, strict=True):
            expected = (old.detach() - 0.1 * velocity).numpy()
            np.testing.assert_allclose(new.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_the_weight_of_flambda_follows_the_epochs():
    one = training(objective="flambda", epochs=2)
    for _ in range(2):
        one.step()
    assert one.weight == 1.0
    one.step()
    assert one.weight != 1.0 and 0 < one.weight < 2


def test_a_run_resumed_at_any_step_ends_with_the_same_bits():
    whole = training(objective="flambda").run()
    for kill_at in range(10):
        one, again = training(objective="flambda"), training(objective="flambda")
        for _ in range(kill_at):
            one.step()
        arrays, facts = one.state()
        one.run()  # what was stored must not move on
        again.restore(arrays, facts)
        found = again.run()
        assert torch.equal(found.mean, whole.mean) and torch.equal(found.rho, whole.rho)


def test_a_run_that_diverges_ends_and_says_at_which_step():
    one = training(lr=1e30, epochs=5)
    one.run()
    assert one.diverged is not None and one.steps_done == one.diverged == one.steps < 15
    again = training(lr=1e30, epochs=5)
    again.restore(*one.state())
    assert again.steps == one.diverged
