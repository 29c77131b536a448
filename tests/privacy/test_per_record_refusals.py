"""What the engine refuses by name: losses, layers, networks and clip bounds."""

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import NETWORKS, records, seeded
from torch import nn

from dpatlas.errors import InputError
from dpatlas.models.group_norm import to_group_norm
from dpatlas.privacy.per_record import NetworkGradients


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_reduced_over_the_batch_is_refused(reduction):
    make, shape = NETWORKS["mlp"]
    kernel = NetworkGradients(
        seeded(make), lambda output, labels: F.cross_entropy(output, labels, reduction=reduction)
    )
    with pytest.raises(InputError, match="loss: found a result of shape"):
        kernel.clipped_sum(*records(shape), 1.0)


def refused(model, shape=(6, 4, 4), match=""):
    with pytest.raises(InputError, match=match):
        NetworkGradients(model).clipped_sum(*records(shape, dtype=torch.float32), max_grad_norm=1.0)


def test_batch_norm_is_refused_by_name_with_the_way_out():
    model = nn.Sequential(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 5))
    refused(model, match=r"layer 1 \(BatchNorm2d\): .*to_group_norm")
    NetworkGradients(to_group_norm(model, groups=4)).clipped_sum(
        *records((6, 4, 4), dtype=torch.float32), 1.0
    )


def test_batch_norm_without_parameters_is_refused_too():
    refused(
        nn.Sequential(nn.BatchNorm2d(6, affine=False), nn.Flatten(), nn.Linear(96, 5)),
        match="layer 0",
    )


def test_dropout_is_refused_unless_it_drops_nothing():
    def model(p):
        return nn.Sequential(nn.Flatten(), nn.Dropout(p), nn.Linear(96, 5))

    refused(model(0.1), match=r"layer 1 \(Dropout\): found p = 0.1")
    NetworkGradients(model(0.0)).clipped_sum(*records((6, 4, 4), dtype=torch.float32), 1.0)


def test_a_trainable_layer_without_a_rule_is_refused_by_name():
    refused(
        nn.Sequential(nn.ConvTranspose2d(6, 2, 3), nn.Flatten(), nn.Linear(72, 5)),
        match=r"layer 0 \(ConvTranspose2d\): found no rule .* weight, bias",
    )


class Tied(nn.Module):
    def __init__(self, twice: bool):
        super().__init__()
        self.first, self.second = nn.Linear(96, 96), nn.Linear(96, 96)
        self.head = nn.Linear(96, 5)
        if not twice:
            self.second.weight = self.first.weight
        self.twice = twice

    def forward(self, x):
        hidden = self.first(x.flatten(1)).relu()
        return self.head((self.first if self.twice else self.second)(hidden))


def test_tied_and_reused_layers_are_refused_by_name():
    refused(Tied(twice=False), match="parameter second.weight: found tied to first.weight")
    refused(Tied(twice=True), match="layer first: found used more than once")


class Mixing(nn.Module):
    def __init__(self, use_weight_only: bool):
        super().__init__()
        self.head = nn.Linear(96, 5)
        self.use_weight_only = use_weight_only

    def forward(self, x):
        x = x.flatten(1)
        if self.use_weight_only:
            return F.linear(x, self.head.weight, self.head.bias)
        return self.head(x - x.mean(0))


def test_a_network_that_mixes_records_is_refused_whatever_its_layers():
    refused(Mixing(use_weight_only=False), match="output depends on other records")


def test_a_layer_whose_forward_is_not_called_is_refused():
    refused(Mixing(use_weight_only=True), match=r"layer head \(Linear\): .*never called")


@pytest.mark.parametrize("bias", [True, False])
def test_nothing_to_train_is_refused(bias):
    model = nn.Sequential(nn.Flatten(), nn.Linear(96, 5, bias)).requires_grad_(False)
    refused(model, match="no trainable parameter")


@pytest.mark.parametrize("bound", [0, -1.0, float("inf"), float("nan")])
def test_a_bad_clip_bound_is_refused(bound):
    model = nn.Sequential(nn.Flatten(), nn.Linear(96, 5))
    with pytest.raises(InputError, match="max_grad_norm"):
        NetworkGradients(model).clipped_sum(*records((6, 4, 4), dtype=torch.float32), bound)
