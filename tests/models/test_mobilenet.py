import pytest
import torch
import torch.nn.functional as F
from clipped_loop import clipped_loop
from torch import nn

from dpatlas.errors import InputError
from dpatlas.models.mobilenet import Block, Row, SqueezeExcitation, mobilenet_v3, rounded
from dpatlas.privacy.per_record import NetworkGradients


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


def theirs(**options):
    from torchvision.models import mobilenet_v3_large

    norm = {"norm_layer": lambda channels: nn.GroupNorm(8, channels)}
    return mobilenet_v3_large(**norm, **options).double().eval()


def renamed(state):
    """Our names of parameters to torchvision's."""
    places = {"body": "features", "hidden": "classifier.0", "head": "classifier.3"}
    return {
        ".".join([places[name.partition(".")[0]], name.partition(".")[2]]): value
        for name, value in state.items()
    }


@pytest.mark.parametrize("narrower", [1, 3])
def test_it_is_torchvisions_with_group_norm_under_its_names(narrower):
    net = seeded(mobilenet_v3, (3, 96, 96), 7, narrower=narrower)
    published = theirs(width_mult=1 / narrower, num_classes=7)
    published.load_state_dict(renamed(net.state_dict()))
    x = records((3, 96, 96), 2)
    torch.testing.assert_close(net(x), published(x))


def test_small_images_skip_the_first_two_strides():
    net = seeded(mobilenet_v3, (3, 32, 32), 7, narrower=2)
    published = theirs(width_mult=1 / 2, num_classes=7)
    published.load_state_dict(renamed(net.state_dict()))
    published.features[0][0].stride = published.features[2].block[1][0].stride = (1, 1)
    x = records((3, 32, 32), 2)
    torch.testing.assert_close(net(x), published(x))


def test_it_has_1280_features_and_torchvisions_number_of_parameters():
    net = mobilenet_v3((3, 224, 224), 1000)
    assert sum(parameter.numel() for parameter in net.parameters()) == 5_483_032
    assert net.head.in_features == 1280
    small = mobilenet_v3()
    assert sum(parameter.numel() for parameter in small.parameters()) == 4_214_842


@pytest.mark.parametrize("side", [32, 64])
def test_the_clipped_sum_is_that_of_a_loop_over_records(side):
    net = seeded(mobilenet_v3, (3, side, side), 5, narrower=8)
    x, labels = records((3, side, side)), torch.tensor([0, 3, 1, 4, 3])
    norms, _ = clipped_loop(net, x, labels, 1.0)
    # Some records are clipped and some are not.
    bound = float(norms.median())
    _, expected = clipped_loop(net, x, labels, bound)
    found = NetworkGradients(net).clipped_sum(x, labels, bound)
    torch.testing.assert_close(found.norms, norms, rtol=1e-9, atol=0)
    assert set(found.gradients) == set(expected) and found.skipped == 0
    for name, value in expected.items():
        torch.testing.assert_close(found.gradients[name], value, rtol=1e-9, atol=1e-10)


def test_squeezed_channels_are_scaled_by_a_gate_of_their_means():
    part = seeded(SqueezeExcitation, 4, 8)
    x = records((4, 3, 5))
    inner = F.relu(x.mean((2, 3)) @ part.fc1.weight[:, :, 0, 0].T + part.fc1.bias)
    gate = (inner @ part.fc2.weight[:, :, 0, 0].T + part.fc2.bias + 3).clamp(0, 6) / 6
    torch.testing.assert_close(part(x), gate[:, :, None, None] * x)


@pytest.mark.parametrize(("out", "stride", "adds"), [(8, 1, True), (8, 2, False), (16, 1, False)])
def test_a_block_adds_to_what_it_was_given_where_shapes_allow(out, stride, adds):
    block = Block(8, Row(3, 24, out, False, True, stride), None)
    nn.init.zeros_(block.block[-1][0].weight)
    nn.init.zeros_(block.block[-1][0].bias)
    x = torch.randn(2, 8, 6, 6)
    found = block(x)
    assert found.shape == (2, out, 6 // stride, 6 // stride)
    assert torch.equal(found, x) if adds else not found.any()


@pytest.mark.parametrize(
    ("width", "found"), [(8, 8), (3, 8), (11.9, 16), (12, 16), (19, 24), (67, 64), (960, 960)]
)
def test_widths_are_multiples_of_8_that_lose_a_tenth_at_most(width, found):
    from torchvision.models._utils import _make_divisible

    assert rounded(width) == found == _make_divisible(width, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"groups": 3}, "groups: found 3; allowed: a divisor of 8"), ({"narrower": 0}, "narrower")],
)
def test_layouts_that_do_not_exist_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        mobilenet_v3(**change)
