import pytest
import torch
from torch import nn
from torchvision import models

from dpatlas.errors import InputError
from dpatlas.models.group_norm import to_group_norm

BATCH_NORMS = nn.modules.batchnorm._BatchNorm


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def moved(net, x):
    """Whether the output of record 0 changes with record 1, in training mode."""
    other = x.clone()
    other[1] += 1
    net.train()
    return not torch.equal(net(x)[0], net(other)[0])


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_published_networks_stop_mixing_records_and_keep_their_weights(name):
    net = getattr(models, name)(num_classes=5)
    for layer in net.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0
    x = torch.randn(2, 3, 64, 64)
    assert moved(net, x)
    for parameter in net.parameters():
        if parameter.ndim == 1:
            nn.init.uniform_(parameter, 0.5, 1.5)
    before = {key: value.clone() for key, value in net.named_parameters()}
    assert to_group_norm(net) is net
    after = dict(net.named_parameters())
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert not any(isinstance(layer, BATCH_NORMS) for layer in net.modules())
    assert not moved(net, x)
    net(x).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.any() for p in net.parameters())


@pytest.mark.parametrize(
    ("channels", "groups", "expected"),
    [(256, 32, 32), (64, 32, 16), (64, 8, 8), (48, 32, 12), (37, 32, 1), (16, 32, 4), (6, 32, 1)],
)
def test_groups_are_the_largest_divisor_that_leaves_four_channels_in_each(
    channels, groups, expected
):
    assert to_group_norm(nn.BatchNorm2d(channels), groups).num_groups == expected


@pytest.mark.parametrize("channels", [3, 4, 5, 16, 64])
def test_a_channel_of_one_pixel_still_depends_on_the_record(channels):
    pooled = nn.Sequential(nn.Conv2d(3, channels, 3), nn.AdaptiveAvgPool2d(1))
    net = to_group_norm(nn.Sequential(pooled, nn.BatchNorm2d(channels), nn.Flatten()))
    x = torch.randn(6, 3, 8, 8)
    out = net(x)
    assert out.std(0).min() > 1e-2
    out[0].mul(torch.randn(channels)).sum().backward()
    assert pooled[0].weight.grad.abs().max() > 1e-2


def test_the_new_layer_computes_group_norm_with_the_old_affine_map():
    old = nn.BatchNorm2d(8, eps=0.1).double()
    nn.init.normal_(old.weight)
    nn.init.normal_(old.bias)
    weight, bias = old.weight.detach().clone(), old.bias.detach().clone()
    x = torch.randn(3, 8, 2, 5, dtype=torch.double)
    cells = x.view(3, 2, -1)
    normal = (cells - cells.mean(2, True)) / (cells.var(2, correction=0, keepdim=True) + 0.1).sqrt()
    expected = normal.view_as(x) * weight[:, None, None] + bias[:, None, None]
    torch.testing.assert_close(to_group_norm(old, groups=2)(x), expected)


def test_a_shared_layer_stays_shared():
    norm = nn.BatchNorm2d(4)
    net = to_group_norm(nn.Sequential(norm, nn.Sequential(norm), norm))
    assert net[0] is net[1][0] is net[2] and isinstance(net[0], nn.GroupNorm)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.LazyBatchNorm2d(), nn.BatchNorm2d(1)])
def test_layers_without_an_equivalent_are_refused_by_name(layer):
    net = nn.ModuleDict({"first": nn.BatchNorm2d(4), "body": nn.Sequential(nn.ReLU(), layer)})
    with pytest.raises(InputError, match=rf"body\.1: {type(layer).__name__}"):
        to_group_norm(net)
    assert isinstance(net["first"], nn.BatchNorm2d)


class BatchNormAct2d(nn.BatchNorm2d):
    """As timm has it: the norm, then dropout and an activation."""

    def __init__(self, channels):
        super().__init__(channels)
        self.drop, self.act = nn.Dropout2d(0.5), nn.SiLU()

    def forward(self, x):
        return self.act(self.drop(super().forward(x)))


class Doubled(nn.BatchNorm2d):
    def forward(self, x):
        return 2 * super().forward(x)


def test_what_a_batch_norm_of_another_class_does_beside_is_kept_or_refused():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), BatchNormAct2d(8), nn.Conv2d(8, 8, 3))
    x = torch.randn(2, 3, 8, 8)
    plain = to_group_norm(nn.Sequential(net[0], nn.BatchNorm2d(8)))
    to_group_norm(net).eval()
    torch.testing.assert_close(net(x), net[2](nn.functional.silu(plain(x))))
    assert isinstance(net[1][1], nn.Dropout2d)
    with pytest.raises(InputError, match="1: Doubled with a forward of its own; allowed: torch's"):
        to_group_norm(nn.Sequential(nn.Conv2d(3, 8, 3), Doubled(8)))
