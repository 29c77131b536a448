"""The networks that are trained here, beside torchvision's, torch's or a count by hand."""

import pytest
import torch
from torch import nn

from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.published import TABLE_4
from dpatlas.models import wide_resnet as wide
from dpatlas.models.alexnet import alexnet
from dpatlas.models.mobilenet import mobilenet_v3
from dpatlas.models.network import linear, mlp
from dpatlas.models.resnet import resnet18
from dpatlas.models.small_cnn import SIZES, bench_cnn, small_cnn
from dpatlas.models.vit import vit
from dpatlas.models.wide_resnet import wide_resnet


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


REFUSED = [
    (alexnet, {"image_shape": (1, 8, 8)}, "8 x 8 pixels; allowed: 13 x 13"),
    (small_cnn, SIZES["s"] | {"channels": (8, 18, 32)}, "found 18; allowed: multiples of 4"),
    (small_cnn, SIZES["s"] | {"pool": 3}, "divides the last map, 4 x 4"),
    (wide_resnet, {"depth": 18}, "6 n + 4"),
    (wide_resnet, {"groups": 32}, "16 channels"),
    (vit, {"patch": 5}, "32 x 32"),
    (vit, {"heads": 5}, "dim = 192"),
    (mobilenet_v3, {"groups": 3}, "groups: found 3; allowed: a divisor of 8"),
]


@pytest.mark.parametrize(("make", "options", "words"), REFUSED)
def test_layouts_that_do_not_exist_are_refused(make, options, words):
    with pytest.raises(InputError) as caught:
        make(**options)
    assert words in str(caught.value)


# Parameters and features, as counted by hand from the layers of the published networks.
SIZES_OF_NETWORKS = [
    (linear, {"image_shape": (1, 8, 8), "outputs": 10}, 650, 64),
    (small_cnn, SIZES["s"], 23_184 + 257 * 10, 256),
    (small_cnn, SIZES["xs"], 9_612 + 33 * 10, 32),
    (small_cnn, SIZES["t"], 5_832 + 33 * 10, 32),
    (small_cnn, SIZES["t"] | {"affine": True}, 5_832 + 33 * 10 + 2 * (8 + 16 + 32), 32),
    (bench_cnn, {}, 288_746, 128),
    (alexnet, {}, 2_472_266, 256),
    (resnet18, {}, 11_173_962, 512),
    (wide_resnet, {}, 2_748_890, 256),
    (vit, {}, 5_362_762, 192),
    (mobilenet_v3, {}, 4_214_842, 1280),
    (mobilenet_v3, {"image_shape": (3, 224, 224), "outputs": 1000}, 5_483_032, 1280),
]


@pytest.mark.parametrize(("make", "options", "parameters", "features"), SIZES_OF_NETWORKS)
def test_networks_have_the_published_numbers_of_parameters_and_features(
    make, options, parameters, features
):
    net = make(**options)
    assert count(net) == parameters and net.head.in_features == features


def test_mlp_is_relu_layers_and_a_linear_head():
    net = mlp((1, 2, 3), 4, widths=(5, 7)).double()
    x = torch.randn(9, 6, dtype=torch.double)
    hidden = torch.relu(x @ net.linear1.weight.T + net.linear1.bias)
    hidden = torch.relu(hidden @ net.linear2.weight.T + net.linear2.bias)
    torch.testing.assert_close(net.features(x), hidden)
    torch.testing.assert_close(net(x), hidden @ net.head.weight.T + net.head.bias)


def test_a_network_is_cut_before_the_first_part_that_holds_a_name():
    net = mlp((1, 2, 3), 4, widths=(5, 7))
    x = torch.randn(9, 6)
    for names, first in ((["head.weight"], "head"), (["head.bias", "linear2.bias"], "linear2")):
        before, rest = net.split(names)
        assert next(iter(dict(rest.named_children()))) == first
        assert torch.equal(rest(before(x)), net(x))
    before, rest = net.split(["linear1.weight"])
    assert before(x) is x and len(rest) == len(net)
    with pytest.raises(ValueError, match="no part holds"):
        net.split(["linear10.weight"])


def test_alexnet_has_the_layers_of_table_4_and_maps_halved_three_times():
    net = alexnet()
    (problem,) = (problem for problem in TABLE_4 if problem.backbone == "alexnet")
    assert (net.head.in_features, net.head.out_features) == (problem.features, problem.classes)
    sides = {}
    x = torch.zeros(2, 3, 32, 32)
    for name, part in net.named_children():
        x = part(x)
        sides[name] = x.shape[-1]
    # Stride 4, then three halvings.
    names = ("conv1", "pool1", "conv2", "pool2", "conv3", "conv4", "conv5", "pool5")
    assert [sides[name] for name in names] == [8, 4, 4, 2, 2, 2, 2, 1]


def test_resnet18_is_torchvisions_with_a_small_stem_under_its_names():
    from torchvision.models import resnet18 as published

    net = resnet18(outputs=7).double()
    theirs = published(norm_layer=lambda channels: nn.GroupNorm(32, channels), num_classes=7)
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    weights = {name.replace("head.", "fc."): value for name, value in net.state_dict().items()}
    theirs.double().load_state_dict(weights)
    x = torch.randn(2, 3, 32, 32, dtype=torch.double)
    torch.testing.assert_close(net(x), theirs(x))


def test_a_block_of_a_wide_resnet_adds_to_its_input_or_to_a_shortcut_of_the_activated_one():
    block = wide.WideBlock(16, 16, 1, groups=16)
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 4, 4)
    assert block.shortcut is None and torch.equal(block(x), x)
    block = wide.WideBlock(16, 32, 2, groups=16).double()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 4, 4, dtype=torch.double)
    active = torch.relu(block.norm1(x))[:, :, ::2, ::2]
    expected = torch.einsum("oi,nihw->nohw", block.shortcut.weight[:, :, 0, 0], active)
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize(("side", "narrower"), [(96, 3), (32, 2)])
def test_mobilenet_is_torchvisions_with_group_norm_and_fewer_strides_on_small_images(
    side, narrower
):
    from torchvision.models import mobilenet_v3_large

    net = mobilenet_v3((3, side, side), 7, narrower=narrower).double()
    # Biases and norms that are not what they begin as.
    for name, parameter in net.named_parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, float(name.endswith("weight")), 0.2)
    published = mobilenet_v3_large(
        norm_layer=lambda channels: nn.GroupNorm(8, channels),
        width_mult=1 / narrower,
        num_classes=7,
    )
    names = {"body": "features", "hidden": "classifier.0", "head": "classifier.3"}
    ours = [(name.partition("."), value) for name, value in net.state_dict().items()]
    published.load_state_dict({f"{names[first]}.{rest}": value for (first, _, rest), value in ours})
    published.double().eval()
    if side < 64:
        published.features[0][0].stride = published.features[2].block[1][0].stride = (1, 1)
    x = torch.randn(2, 3, side, side, dtype=torch.double)
    torch.testing.assert_close(net(x), published(x))
