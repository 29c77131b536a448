"""Canaries with a private input coordinate: independent, and found from losses alone."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from gaussian_profile import gaussian_profile
from scipy import stats
from torch import nn

from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.one_run import PROFILE_DELTAS, one_run_profile_test
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.side_door import (
    SideDoor,
    side_door_canaries,
    side_door_evidence,
    side_door_records,
    side_door_scores,
)
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

SHAPE, CLASSES, RECORDS = (1, 6, 6), 3, 40


class Batches(NamedTuple):
    """What is claimed of a training: an epsilon of 3 to 4 at delta 1e-5."""

    sample_rate: float
    noise_multiplier: float
    steps: int


FULL, SMALL = Batches(1.0, 3.0, 10), Batches(0.05, 1.1, 200)


def convolutional():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, CLASSES))


def side_door(canaries, seed=0):
    torch.manual_seed(seed)
    return SideDoor(convolutional(), SHAPE, canaries, CLASSES)


def data(canaries, seed=0):
    """Ordinary records and labels, and the canaries."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(RECORDS, *SHAPE, generator=draws)
    labels = torch.randint(CLASSES, (RECORDS,), generator=draws)
    return side_door_records(x, canaries), labels, *side_door_canaries(SHAPE, canaries, CLASSES)


def audited(canaries, noise_multiplier, seed, batches=FULL, white_box=False):
    """The test of the claim with the noise of `batches`, on a training with another noise."""
    included = np.random.default_rng(seed).random(canaries) < 0.5
    x, labels, offered, offered_labels = data(canaries, seed)
    there = torch.from_numpy(included)
    x = torch.cat([x, offered[there]])
    labels = torch.cat([labels, offered_labels[there]])
    sampler = Poisson(len(x), round(batches.sample_rate * len(x)))
    phase = TrainingPhase(sampler, noise_multiplier, 1.0, batches.steps, lr=0.5)
    evidence = np.zeros(canaries)

    def see(step, sums):
        evidence[:] += side_door_evidence(
            sums["door.weight"], offered_labels, sampler.sample_rate, batches.noise_multiplier, 1.0
        )

    network = side_door(canaries, seed)
    noise = Noise(f"side door {canaries} {noise_multiplier} {seed} {white_box}", "keyed")
    PrivateTraining(network, [phase], x, labels, noise=noise, on_update=see).run()
    claim = [Phase(sampler, batches.noise_multiplier, batches.steps)]
    epsilons = [guarantee(claim, delta, "add_remove").epsilon for delta in PROFILE_DELTAS]
    scores = evidence if white_box else side_door_scores(network, offered, offered_labels)
    return one_run_profile_test(scores, included, epsilons, PROFILE_DELTAS)


@pytest.mark.parametrize("seed", range(2))
def test_half_the_noise_is_rejected_at_a_thousand_canaries_and_the_right_noise_is_not(seed):
    assert audited(1000, FULL.noise_multiplier / 2, seed).rejected
    honest = audited(1000, FULL.noise_multiplier, seed)
    assert honest.could_reject
    assert not honest.rejected


def test_a_quarter_of_the_noise_is_rejected_at_four_hundred_canaries():
    assert audited(400, FULL.noise_multiplier / 4, 0).rejected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_of_small_batches_the_noisy_sums_show_half_the_noise_and_the_losses_do_not(seed):
    half = SMALL.noise_multiplier / 2
    assert audited(1000, half, seed, SMALL, white_box=True).rejected
    assert not audited(1000, half, seed, SMALL).rejected
    assert not audited(1000, SMALL.noise_multiplier, seed, SMALL, white_box=True).rejected


@pytest.mark.parametrize("q", [0.3, 1.0])
def test_evidence_is_the_log_ratio_of_a_canary_in_to_out(q):
    # Two classes: the gradient is (-1, 1) / sqrt(2) times the bound for label 0.
    sums = torch.tensor([[-3.0, 2.0], [1.0, 4.0]], dtype=torch.float64)
    evidence = side_door_evidence(sums, torch.tensor([0, 1]), q, 1.5, 2.0)
    t = np.array([4.0, -2.0]) / 2**0.5 / 2.0
    density = stats.norm(0, 1.5).pdf
    expected = np.log((1 - q) + q * density(t - 1) / density(t))
    np.testing.assert_allclose(evidence, expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("noise_multiplier", "rejected"), [(3.0, False), (1.5, True)])
def test_half_the_noise_in_opacus_is_rejected_from_losses_alone(noise_multiplier, rejected):
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    included = np.random.default_rng(1).random(1000) < 0.5
    x, labels, offered, offered_labels = data(1000)
    there = torch.from_numpy(included)
    x, labels = torch.cat([x, offered[there]]), torch.cat([labels, offered_labels[there]])
    network = GradSampleModule(side_door(1000))
    optimizer = DPOptimizer(
        torch.optim.SGD(network.parameters(), lr=0.5),
        noise_multiplier=noise_multiplier,
        max_grad_norm=1.0,
        expected_batch_size=540,
        generator=torch.Generator().manual_seed(2),
    )
    for _ in range(FULL.steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), labels).backward()
        optimizer.step()
    scores = side_door_scores(network, offered, offered_labels)
    claim = gaussian_profile(FULL.steps**0.5 / FULL.noise_multiplier)
    test = one_run_profile_test(scores, included, *claim)
    assert test.could_reject
    assert test.rejected == rejected


def test_with_closed_doors_a_network_is_what_it_was():
    network, (x, labels, *_) = side_door(5), data(5)
    plain = network.network
    outputs = plain(x[:, :36].unflatten(1, SHAPE))
    torch.testing.assert_close(network(x), outputs, rtol=0, atol=0)
    kernel = PrivateTraining(
        network, [TrainingPhase(Poisson(RECORDS, 8), 1.0, 0.1, 1, 0.1)], x, labels, noise=Noise("x")
    ).kernel
    gradients = kernel.clipped_sum(x, labels, 0.1).gradients
    assert not gradients["door.weight"].any()


def test_a_private_coordinate_has_the_gradient_of_its_canary_alone_and_nearly_all_of_it():
    x, labels, offered, offered_labels = data(5)
    phase = TrainingPhase(Poisson(RECORDS + 5, 8), 1.0, 0.1, 1, 0.1)
    everyone, all_labels = torch.cat([x, offered]), torch.cat([labels, offered_labels])
    training = PrivateTraining(side_door(5), [phase], everyone, all_labels, noise=Noise("x"))
    doors = training.kernel.clipped_sum(everyone, all_labels, 0.1).gradients["door.weight"]
    for canary in range(5):
        alone = training.kernel.clipped_sum(
            offered[[canary]], offered_labels[[canary]], 0.1
        ).gradients["door.weight"]
        torch.testing.assert_close(doors[:, canary], alone[:, canary])
        assert alone.norm() == pytest.approx(alone[:, canary].norm())
        assert 0.095 < alone.norm() <= 0.1


def test_scores_do_not_depend_on_how_well_a_blank_record_is_fitted():
    network, (_, _, offered, labels) = side_door(6), data(6)
    assert not side_door_scores(network, offered, labels).any()
    with torch.no_grad():
        network.door.weight[labels, torch.arange(6)] += torch.arange(6) * 0.01
    assert (np.diff(side_door_scores(network, offered, labels)[::3]) > 0).all()


def test_labels_go_round_the_classes_and_a_canary_is_blank_but_for_its_coordinate():
    x, labels = side_door_canaries((2, 2), 5, CLASSES, magnitude=3.0)
    assert labels.tolist() == [0, 1, 2, 0, 1]
    torch.testing.assert_close(x, torch.cat([torch.zeros(5, 4), 3 * torch.eye(5)], 1))


def test_records_without_doors_are_refused_by_name():
    with pytest.raises(InputError, match=r"x of a side door.*\(n, 36 \+ 5\)"):
        side_door(5)(torch.zeros(2, *SHAPE))
    with pytest.raises(InputError, match="canaries"):
        side_door(1)
    with pytest.raises(InputError, match="magnitude"):
        side_door_canaries(SHAPE, 5, CLASSES, magnitude=0.0)
