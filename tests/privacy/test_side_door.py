"""Canaries with a private input coordinate: independent, and found from losses alone."""

import numpy as np
import pytest
import torch
from torch import nn

from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.accounting import guarantee
from dpatlas.privacy.one_run import PROFILE_DELTAS, one_run_profile_test
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.side_door import (
    SideDoor,
    side_door_canaries,
    side_door_records,
    side_door_scores,
)
from dpatlas.privacy.training import PrivateTraining, TrainingPhase

SHAPE, CLASSES, RECORDS = (1, 6, 6), 3, 40
STEPS, NOISE = 10, 3.0


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


def audited(canaries, noise_multiplier, seed, max_grad_norm=1.0):
    """The test of the claim with NOISE, on a training with another noise: full batches, one run."""
    included = np.random.default_rng(seed).random(canaries) < 0.5
    x, labels, offered, offered_labels = data(canaries, seed)
    there = torch.from_numpy(included)
    x = torch.cat([x, offered[there]])
    labels = torch.cat([labels, offered_labels[there]])
    sampler = Poisson(len(x), len(x))
    phase = TrainingPhase(sampler, noise_multiplier, max_grad_norm, STEPS, lr=0.5)
    network = side_door(canaries, seed)
    noise = Noise(f"side door {canaries} {noise_multiplier} {seed}", "keyed")
    PrivateTraining(network, [phase], x, labels, noise=noise).run()
    claim = [TrainingPhase(sampler, NOISE, 1.0, STEPS, lr=0.5).accounted]
    epsilons = [guarantee(claim, delta, "add_remove").epsilon for delta in PROFILE_DELTAS]
    scores = side_door_scores(network, offered, offered_labels)
    return one_run_profile_test(scores, included, epsilons, PROFILE_DELTAS)


@pytest.mark.parametrize("seed", range(3))
def test_half_the_noise_is_rejected_at_a_thousand_canaries_and_the_right_noise_is_not(seed):
    assert audited(1000, NOISE / 2, seed).rejected
    honest = audited(1000, NOISE, seed)
    assert honest.could_reject
    assert not honest.rejected


def test_a_quarter_of_the_noise_is_rejected_at_four_hundred_canaries():
    assert audited(400, NOISE / 4, 0).rejected


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


def test_opacus_sees_the_same_gradients_of_every_record():
    from opacus import GradSampleModule

    network, (_, _, offered, labels) = side_door(5), data(5)
    wrapped = GradSampleModule(network)
    nn.functional.cross_entropy(wrapped(offered), labels, reduction="sum").backward()
    doors = network.door.weight.grad_sample
    assert doors.shape == (5, CLASSES, 5)
    own = torch.eye(5, dtype=torch.bool)
    assert doors.permute(0, 2, 1)[own].any(1).all()
    assert not doors.permute(0, 2, 1)[~own].any()


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
