import pytest
import torch
from torch import nn

from dpatlas.models.network import linear, mlp


def test_softmax_regression_has_one_weight_a_pixel_and_class():
    net = linear((1, 8, 8), 10)
    assert sum(p.numel() for p in net.parameters()) == 650
    x = torch.randn(3, 64)
    torch.testing.assert_close(net(x), x @ net.head.weight.T + net.head.bias)
    assert net.features(x) is x


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
