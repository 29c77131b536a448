import pytest
import torch
from torch import nn

from dpatlas.errors import InputError
from dpatlas.models.small_cnn import SIZES, bench_cnn, small_cnn


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("size", "body", "features"), [("s", 23_184, 256), ("xs", 9_612, 32), ("t", 5_832, 32)]
)
def test_sizes_of_the_digit_networks(size, body, features):
    net = small_cnn(**SIZES[size])
    assert count(net) - count(net.head) == body and net.head.in_features == features
    x = torch.randn(3, 1, 8, 8)
    assert net.features(x).shape == (3, features)
    torch.testing.assert_close(net.head(net.features(x)), net(x))


def test_group_norm_has_parameters_only_if_asked():
    plain, affine = (small_cnn(**SIZES["t"], affine=affine) for affine in (False, True))
    assert count(affine) - count(plain) == 2 * (8 + 16 + 32)
    groups = [part.num_groups for part in plain if isinstance(part, nn.GroupNorm)]
    assert groups == [4, 4, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"channels": (8, 18, 32)}, "channels: found 18; allowed: multiples of 4"),
        ({"strides": (1, 2)}, "strides: found [1, 2]; allowed: 3 of them"),
        ({"pool": 3}, "divides the last map, 4 x 4"),
        ({"outputs": 0}, "outputs"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(change, message):
    with pytest.raises(InputError) as caught:
        small_cnn(**SIZES["s"] | change)
    assert message in str(caught.value)


def test_the_network_to_time_has_289_thousand_parameters():
    net = bench_cnn()
    convolutions = 9 * (3 * 32 + 32 * 32 + 32 * 64 + 64 * 64 + 64 * 128 + 128 * 128)
    assert count(net) == convolutions + 2 * 2 * (32 + 64 + 128) + 1290 == 288_746
    assert net.features(torch.randn(2, 3, 32, 32)).shape == (2, 128)
