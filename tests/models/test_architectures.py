"""The networks that are trained here, beside torchvision's, torch's or a count by hand."""

import pytest
import torch
from torch import nn

from dpatlas.errors import InputError
from dpatlas.models import vit as transformer
from dpatlas.models import wide_resnet as wide
from dpatlas.models.alexnet import alexnet
from dpatlas.models.mobilenet import mobilenet_v3
from dpatlas.models.network import linear, mlp
from dpatlas.models.resnet import resnet18
from dpatlas.models.small_cnn import SIZES, bench_cnn, small_cnn
from dpatlas.models.vit import ClassToken, vit
from dpatlas.models.wide_resnet import wide_resnet
from dpatlas.papers.dp_sgld.formulas.published import TABLE_4


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


REFUSED = [
    (alexnet, {"image_shape": (1, 8, 8)}, "8 x 8 pixels; allowed: 13 x 13"),
    (small_cnn, SIZES["s"] | {"channels": (8, 18, 32)}, "found 18; allowed: multiples of 4"),
    (small_cnn, SIZES["s"] | {"strides": (1, 2)}, "strides: found [1, 2]; allowed: 3 of them"),
    (small_cnn, SIZES["s"] | {"pool": 3}, "divides the last map, 4 x 4"),
    (small_cnn, SIZES["s"] | {"outputs": 0}, "outputs"),
    (wide_resnet, {"depth": 18}, "6 n + 4"),
    (wide_resnet, {"groups": 32}, "16 channels"),
    (vit, {"patch": 5}, "32 x 32"),
    (vit, {"heads": 5}, "dim = 192"),
    (vit, {"depth": 0}, "depth"),
    (mobilenet_v3, {"groups": 3}, "groups: found 3; allowed: a divisor of 8"),
    (mobilenet_v3, {"narrower": 0}, "narrower"),
]


@pytest.mark.parametrize(("make", "options", "words"), REFUSED)
def test_layouts_that_do_not_exist_are_refused(make, options, words):
    with pytest.raises(InputError) as caught:
        make(**options)
    assert words in str(caught.value)


def test_softmax_regression_has_one_weight_a_pixel_and_class():
    net = linear((1, 8, 8), 10)
    assert sum(p.numel() for p in net.parameters()) == 650
    x = torch.randn(3, 64)
    torch.testing.assert_close(net(x), x @ net.head.weight.T + net.head.bias)
    assert net.features(x) is x


# Parameters and features, as counted by hand from the layers of the published networks.
SIZES_OF_NETWORKS = [
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
    assert isinstance(net[-1], nn.Linear)


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


@pytest.mark.parametrize(
    ("size", "body", "features"), [("s", 23_184, 256), ("xs", 9_612, 32), ("t", 5_832, 32)]
)
def test_sizes_of_the_digit_networks(size, body, features):
    net = small_cnn(**SIZES[size])
    assert count(net) - count(net.head) == body and net.head.in_features == features
    x = torch.randn(3, 1, 8, 8)
    assert net.features(x).shape == (3, features)
    torch.testing.assert_close(net.head(net.features(x)), net(x))


def test_group_norm_of_the_small_cnns_has_parameters_only_if_asked():
    plain, affine = (small_cnn(**SIZES["t"], affine=affine) for affine in (False, True))
    assert count(affine) - count(plain) == 2 * (8 + 16 + 32)
    groups = [part.num_groups for part in plain if isinstance(part, nn.GroupNorm)]
    assert groups == [4, 4, 4]


def test_alexnet_has_the_layers_of_table_4_and_maps_halved_three_times():
    net = alexnet()
    kinds = [type(part) for part in net]
    assert kinds.count(nn.Conv2d) == 5 and kinds.count(nn.ReLU) == 5
    assert kinds.count(nn.MaxPool2d) + kinds.count(nn.AdaptiveMaxPool2d) == 3
    (problem,) = (problem for problem in TABLE_4 if problem.backbone == "alexnet")
    assert (net.head.in_features, net.head.out_features) == (problem.features, problem.classes)
    sides = {}
    x = torch.zeros(2, 3, 32, 32)
    for name, part in net.named_children():
        x = part(x)
        sides[name] = x.shape[-1]
    # Stride 4, then three halvings.
    assert [sides[f"conv{i}"] for i in range(1, 6)] == [8, 4, 2, 2, 2]
    assert (sides["pool1"], sides["pool2"], sides["pool5"]) == (4, 2, 1)


def test_resnet18_is_torchvisions_with_a_small_stem_under_its_names():
    from torchvision.models import resnet18 as published

    net = resnet18(outputs=7).double()
    theirs = published(norm_layer=lambda channels: nn.GroupNorm(32, channels), num_classes=7)
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    weights = {name.replace("head.", "fc."): value for name, value in net.state_dict().items()}
    theirs.double().load_state_dict(weights)
    x = torch.randn(2, 3, 32, 32, dtype=torch.double)
    torch.testing.assert_close(net(x), theirs(x))


def test_a_block_of_a_wide_resnet_adds_to_its_input():
    block = wide.Block(16, 16, 1, groups=16)
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 4, 4)
    assert block.shortcut is None and torch.equal(block(x), x)


def test_the_shortcut_of_a_wide_resnet_sees_the_activated_input():
    block = wide.Block(16, 32, 2, groups=16).double()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 4, 4, dtype=torch.double)
    active = torch.relu(block.norm1(x))[:, :, ::2, ::2]
    expected = torch.einsum("oi,nihw->nohw", block.shortcut.weight[:, :, 0, 0], active)
    torch.testing.assert_close(block(x), expected)


DIM, HEADS = 12, 3


def test_a_block_of_the_vit_is_torchs_pre_norm_encoder_layer():
    block = transformer.Block(DIM, HEADS, 4).double()
    theirs = nn.TransformerEncoderLayer(
        DIM, HEADS, 4 * DIM, dropout=0, activation="gelu", batch_first=True, norm_first=True
    ).double()
    names = {
        "self_attn.in_proj_": "attention.qkv.",
        "self_attn.out_proj.": "attention.out.",
        "linear1.": "linear1.",
        "linear2.": "linear2.",
        "norm1.": "norm1.",
        "norm2.": "norm2.",
    }
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    ours = block.state_dict()
    theirs.load_state_dict(
        {to + kind: ours[at + kind] for to, at in names.items() for kind in ("weight", "bias")}
    )
    x = torch.randn(2, 5, DIM, dtype=torch.double)
    torch.testing.assert_close(block(x), theirs(x))


def test_a_token_of_the_vit_is_a_patch():
    net = vit((3, 8, 8), depth=1, dim=DIM)
    x = torch.randn(2, 3, 8, 8)
    tokens = net.tokens(net.patches(x))
    # Second row, first column of patches.
    patch = x[:, :, 4:, :4].flatten(1)
    expected = patch @ net.patches.weight.flatten(1).T + net.patches.bias
    torch.testing.assert_close(tokens[:, 2], expected)


def test_class_token_goes_before_every_records_tokens():
    layer = ClassToken(DIM)
    nn.init.normal_(layer.value)
    x = torch.randn(2, 4, DIM)
    out = layer(x)
    assert torch.equal(out[:, 1:], x) and torch.equal(out[:, 0], layer.value.expand(2, -1))


def seeded(make, *arguments, **options):
    """In float64, with biases and norms that are not what they begin as."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        net = make(*arguments, **options).double()
        for name, parameter in net.named_parameters():
            if parameter.ndim == 1:
                nn.init.normal_(parameter, float(name.endswith("weight")), 0.2)
    return net


def records(shape, rows=5):
    draws = torch.Generator().manual_seed(3)
    return torch.randn(rows, *shape, generator=draws, dtype=torch.float64)


@pytest.mark.parametrize(("side", "narrower"), [(96, 1), (96, 3), (32, 2)])
def test_mobilenet_is_torchvisions_with_group_norm_and_fewer_strides_on_small_images(
    side, narrower
):
    from torchvision.models import mobilenet_v3_large

    net = seeded(mobilenet_v3, (3, side, side), 7, narrower=narrower)
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
    x = records((3, side, side), 2)
    torch.testing.assert_close(net(x), published(x))
