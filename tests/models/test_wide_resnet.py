import pytest
import torch
from torch import nn

from dpatlas.errors import InputError
from dpatlas.models.wide_resnet import Block, wide_resnet


def test_wrn_16_4_has_2_75_million_parameters():
    def block(into, out):
        shortcut = 0 if into == out else into * out
        return 9 * into * out + 9 * out * out + shortcut + 2 * into + 2 * out

    expected = 27 * 16 + 2 * 256 + 257 * 10
    for into, out in ((16, 64), (64, 128), (128, 256)):
        expected += block(into, out) + block(out, out)
    net = wide_resnet()
    assert sum(parameter.numel() for parameter in net.parameters()) == expected == 2_748_890


def test_a_block_adds_to_what_it_was_given():
    block = Block(16, 16, 1, groups=16)
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 4, 4)
    assert block.shortcut is None and torch.equal(block(x), x)


def test_the_shortcut_sees_the_activated_input():
    block = Block(16, 32, 2, groups=16).double()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 4, 4, dtype=torch.double)
    active = torch.relu(block.norm1(x))[:, :, ::2, ::2]
    expected = torch.einsum("oi,nihw->nohw", block.shortcut.weight[:, :, 0, 0], active)
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"depth": 18}, "6 n + 4"), ({"groups": 32}, "16 channels"), ({"widen": 0}, "widen")],
)
def test_layouts_that_do_not_exist_are_refused(change, message):
    with pytest.raises(InputError) as caught:
        wide_resnet(**change)
    assert message in str(caught.value)
