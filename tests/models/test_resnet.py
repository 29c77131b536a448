import torch
from torch import nn

from dpatlas.models.resnet import resnet18


def test_resnet18_is_torchvisions_with_a_small_stem_under_its_names():
    from torchvision.models import resnet18 as published

    net = resnet18(outputs=7).double()
    theirs = published(norm_layer=lambda channels: nn.GroupNorm(32, channels), num_classes=7)
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    weights = {name.replace("head.", "fc."): value for name, value in net.state_dict().items()}
    theirs.double().load_state_dict(weights)
    x = torch.randn(2, 3, 32, 32, dtype=torch.double)
    torch.testing.assert_close(net(x), theirs(x))


def test_resnet18_has_11_million_parameters_and_ends_at_4_by_4():
    net = resnet18()
    assert sum(parameter.numel() for parameter in net.parameters()) == 11_173_962
    x = torch.randn(2, 3, 32, 32)
    assert net[:-3](x).shape == (2, 512, 4, 4) and net.features(x).shape == (2, 512)


def test_every_norm_of_resnet18_has_32_groups():
    norms = [part for part in resnet18().modules() if isinstance(part, nn.GroupNorm)]
    assert len(norms) == 20 and {norm.num_groups for norm in norms} == {32}
