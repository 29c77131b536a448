"""Posteriors: objectives and their slopes, one step by hand, resuming, and what diverges."""

import json
import math
from typing import get_args

import numpy as np
import pytest
import torch
from small_jobs import labelled

from dpatlas.base.seeds import Noise
from dpatlas.formulas.max_information.certificates import kl_inverse
from dpatlas.models.mean_field import MeanField, flat_values, initial_network
from dpatlas.models.mean_field_passes import outputs
from dpatlas_workflow.papers.max_information.jobs import posteriors
from dpatlas_workflow.papers.max_information.jobs.gradients import bounded_cross_entropy, loss_scale
from dpatlas_workflow.papers.max_information.records.certified import Objective

N, EXTRA = 24, 3.0
# Of the posteriors that are trained together.
EXTRAS, TAUS = (EXTRA, 11.0, 0.5), (0.3, 0.2, 0.4)


def settings(**changes):
    given = {"objective": "fclassic", "loss": "per-class", "lr": 0.1, "momentum": 0.95}
    given |= {"batch": 8, "epochs": 3, "kl_penalty": 0.1}
    return posteriors.TrainingSettings(**{**given, **changes})


def training(repetition=0, noise="spec", name="mlp", n=N, stack=(0, 1, 2), **changes):
    arrays = labelled({"train": n}, margin=4)
    x, labels = (torch.from_numpy(arrays[f"{part}_train"]) for part in "xy")
    options = {"widths": [6, 5]} if name == "mlp" else {}
    shape = (1, 4, 4) if name == "mlp" else (1, 8, 8)
    if name != "mlp":
        x = x.repeat(1, 4)
    keys = {"key": "max_information", "run": 0, "base_seed": 0}
    network = initial_network(name, shape, 3, **options, **keys)
    centre = flat_values(network)
    return posteriors.PosteriorTraining(
        network,
        torch.stack([centre * (1 + 0.2 * number) for number in stack]),
        [TAUS[number] for number in stack],
        x,
        labels,
        settings(**changes),
        extras=[EXTRAS[number] for number in stack],
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
        weight = posteriors.best_weight(risk, c)
        assert 0 < weight < 2
        found = posteriors.flambda(risk, c, 100, weight)
        reference = posteriors.fquad(risk, c, 100)
        assert found.value == pytest.approx(reference.value, rel=1e-12)
        assert found.kl == pytest.approx(reference.kl, rel=1e-9)
        for other in (0.9 * weight, 1.1 * weight):
            assert posteriors.flambda(risk, c, 100, other).value > found.value


def test_the_bounded_loss_lies_between_0_and_1_and_the_other_is_1_for_a_guess():
    labels = torch.tensor([0, 1, 2])
    wrong = torch.eye(3).roll(1, 1) * 100
    assert bounded_cross_entropy(wrong, labels).item() == pytest.approx(1.0)
    assert bounded_cross_entropy(torch.eye(3) * 100, labels).item() == pytest.approx(0.0)
    assert bounded_cross_entropy(torch.zeros(3, 3), labels, "per-class").item() == pytest.approx(1)
    ratio = math.log(1e5) / math.log(3)
    assert bounded_cross_entropy(wrong, labels, "per-class").item() == pytest.approx(ratio)


def loss_by_autograd(one, number, weight, mean, rho):
    """The whole objective of a posterior at its next step, in float64; loss as the settings say."""
    batch = one.sampler.batch_indices(one.noise, 0, one.steps_done)
    noise = [part.double() for part in one._normals(len(batch))]
    scale, tau = torch.nn.functional.softplus(rho), TAUS[number]
    law = MeanField(one.network, mean, rho)
    x, labels = one.x[batch].double(), one.labels[batch]
    output = outputs(one.network, law.named(mean), law.named(scale), x, noise)
    risk = bounded_cross_entropy(output, labels, one.settings.loss)
    ratio, moved = scale / tau, mean - one.centres[number].double()
    kl = ((ratio**2 - 1) / 2 - ratio.log() + moved**2 / (2 * tau**2)).sum()
    c = (kl + EXTRAS[number]) / (2 * N)
    objective = one.settings.objective
    if objective == "fkl":
        slopes = posteriors.fkl(float(risk.detach()), float(c.detach()), N)
        return slopes.risk * risk + slopes.kl * kl
    return {
        "bbb": risk + one.settings.kl_penalty * kl / N,
        "fquad": ((risk + c).sqrt() + c.sqrt()) ** 2,
        "fclassic": risk + c.sqrt(),
        "flambda": (risk + 2 * c / weight) / (1 - weight / 2),
    }[objective]


@pytest.mark.parametrize(
    ("name", "objective", "loss"),
    [
        *(("mlp", objective, "bounded") for objective in get_args(Objective)),
        *(("mlp", objective, "per-class") for objective in get_args(Objective)[:2]),
        ("bayes-cnn9", "flambda", "bounded"),
    ],
)
def test_steps_descend_the_whole_objective_of_every_posterior_with_momentum(name, objective, loss):
    """Against autograd in float64, through softplus, KL and objective at once."""
    # Of the large network fewer; in its second step a ReLU's sign may turn by rounding.
    stack, steps = ((0, 1, 2), 2) if name == "mlp" else ((0, 1), 1)
    one = training(name=name, stack=stack, objective=objective, loss=loss, epochs=1)
    one.flats[0].add_(0.01)
    one.flats[1, :, ::2] += 0.2
    one.weights = [(1.0, 0.7, 1.3)[number] for number in stack]
    velocities = torch.zeros(2, len(stack), one.parameters, dtype=torch.float64)
    for _ in range(steps):
        before = one.flats[:, :, : one.parameters].double()
        gradients = torch.zeros_like(velocities)
        for number, weight in enumerate(one.weights):
            leaves = [flat[number].clone().requires_grad_() for flat in before]
            with torch.enable_grad():
                whole = loss_by_autograd(one, number, weight, *leaves)
            gradients[:, number] = torch.stack(torch.autograd.grad(whole, leaves))
        one.step()
        velocities = 0.95 * velocities + gradients
        found = one.velocities[:, :, : one.parameters].double()
        apart, most = (each.abs().amax(dim=2) for each in (found - velocities, velocities))
        assert (apart < 2e-6 * most).all()
        after = one.flats[:, :, : one.parameters].double()
        np.testing.assert_allclose(after, before - 0.1 * found, rtol=1e-6, atol=1e-6)


def test_clamped_log_probabilities_have_no_gradient():
    """Logits so far apart that wrong records lie beyond log(1e-5), of both losses."""
    for loss in ("bounded", "per-class"):
        one = training(loss=loss, objective="bbb", kl_penalty=0.0, stack=(0,), batch=N)
        one.flats[0] *= 60
        mean, rho = (flat[:, : one.parameters].double() for flat in one.flats)
        leaves = [flat[0].clone().requires_grad_() for flat in (mean, rho)]
        with torch.enable_grad():
            risk = loss_by_autograd(one, 0, 1.0, *leaves)
        expected = torch.stack(torch.autograd.grad(risk, leaves))
        one.step()
        # Some records are clamped, some not.
        most = math.log(1e5) / loss_scale(3, loss)
        assert 0.2 * most < float(risk.detach()) < 0.9 * most
        found = one.velocities[:, 0, : one.parameters].double()
        assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize(
    ("name", "objective"),
    [*(("mlp", objective) for objective in get_args(Objective)), ("bayes-cnn9", "flambda")],
)
def test_a_posterior_in_a_stack_is_the_one_that_is_trained_alone(name, objective):
    given = {"name": name, "objective": objective, "loss": "bounded", "lr": 0.01}
    stack, given["epochs"] = ((0, 1, 2), 2) if name == "mlp" else ((0, 1), 1)
    stacked = training(**given, stack=stack)
    together = stacked.run()
    for number, law in enumerate(together):
        one = training(**given, stack=(number,))
        (alone,) = one.run()
        for found, expected in ((law.mean, alone.mean), (law.rho, alone.rho)):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert stacked.weights[number] == pytest.approx(one.weights[0], rel=1e-5)
    # They differ: none took another's centre, tau or extra.
    assert not np.allclose(together[0].rho, together[1].rho, atol=1e-3)


def test_the_weights_of_flambda_follow_the_epochs_of_each_posterior():
    one = training(objective="flambda", epochs=2)
    for _ in range(2):
        one.step()
    assert one.weights == [1.0] * 3
    one.step()
    assert len(set(one.weights)) == 3 and all(0 < weight < 2 for weight in one.weights)


def test_a_run_resumed_at_any_step_ends_with_the_same_bits():
    ended = training(objective="flambda")
    ended.run()
    for kill_at in range(10):
        one, again = training(objective="flambda"), training(objective="flambda")
        for _ in range(kill_at):
            one.step()
        arrays, facts = one.state()
        one.run()  # what was stored must not move on
        again.restore(arrays, json.loads(json.dumps(facts)))
        again.run()
        assert again.flats.numpy().tobytes() == ended.flats.numpy().tobytes()
        assert again.weights == ended.weights


def test_a_run_that_diverges_ends_and_says_at_which_step():
    one = training(lr=1e30, epochs=5)
    one.run()
    assert None not in one.diverged and one.steps_done == max(one.diverged) == one.steps < 15
    again = training(lr=1e30, epochs=5)
    again.restore(*one.state())
    assert again.steps == one.steps and again.diverged == one.diverged
