"""torchvision's networks train privately as they are built, but for BatchNorm in training mode."""

import warnings

import pytest
import torch
from reference_gradients import clipped_sum, distance, per_record_gradients
from small_training import flat, weights
from torch import nn
from torchvision.models import VisionTransformer, resnet18

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.group_norm import to_group_norm
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

ROWS, CLASSES = 4, 3


def tiny_vit():
    return VisionTransformer(
        image_size=16,
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=24,
        num_classes=CLASSES,
    )


# Name -> network.
NETWORKS = {
    "resnet18 with GroupNorm": lambda: to_group_norm(resnet18(num_classes=CLASSES), groups=8),
    "resnet18 with frozen BatchNorm": lambda: resnet18(num_classes=CLASSES).eval(),
    "vision transformer": tiny_vit,
}

# The ResNets take ten seconds each.
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if "resnet" in name else ()) for name in NETWORKS
]


def images(dtype=torch.float32):
    draws = torch.Generator().manual_seed(2)
    x = torch.randn(ROWS, 3, 16, 16, generator=draws, dtype=dtype)
    return x, torch.arange(ROWS) % CLASSES


def made(name):
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = NETWORKS[name]()
        for value in model.parameters():
            # A vision transformer's head is zero at first.
            if not value.any():
                nn.init.normal_(value, std=0.1)
        return model


@pytest.mark.parametrize("name", NAMES)
def test_a_network_of_torchvision_trains_by_rules_alone(name):
    model, (x, labels) = made(name), images()
    before = flat(weights(model))
    phase = TrainingPhase(FullBatch(ROWS), 0.0, 1.0, 3, 0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training = PrivateTraining(model, [phase], x, labels, noise=Noise("vision"))
        loss = nn.functional.cross_entropy(model(x), labels)
        training.run()
    assert training.skipped_records == 0
    assert (flat(weights(model)) - before).norm() > 0
    assert nn.functional.cross_entropy(model(x), labels) < loss


@pytest.mark.parametrize("name", NAMES)
def test_a_network_of_torchvision_has_the_clipped_sum_of_a_loop(name):
    model, (x, labels) = made(name).double(), images(torch.float64)
    found = NetworkGradients(model).clipped_sum(x, labels, 0.5)
    expected = clipped_sum(per_record_gradients(model, x, labels), 0.5)
    assert distance(found.gradients, expected) < 1e-9


def test_a_resnet_with_batch_norm_in_training_mode_is_refused_by_name():
    x, labels = images()
    with pytest.raises(InputError, match=r"layer bn1 \(BatchNorm2d\): .*to_group_norm"):
        NetworkGradients(resnet18(num_classes=CLASSES)).clipped_sum(x, labels, 1.0)
