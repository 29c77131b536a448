import pytest
import torch
from torch import nn

from dpatlas.errors import InputError
from dpatlas.models.vit import Block, ClassToken, vit

DIM, HEADS = 12, 3


def test_a_block_is_torchs_pre_norm_encoder_layer():
    block = Block(DIM, HEADS, 4).double()
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


def test_vit_tiny_has_5_36_million_parameters():
    block = 2 * 2 * 192 + 192 * 576 + 576 + 192 * 192 + 192 + 2 * 192 * 768 + 768 + 192
    expected = 12 * block + 48 * 192 + 192 + 192 + 65 * 192 + 2 * 192 + 1930
    net = vit()
    assert sum(parameter.numel() for parameter in net.parameters()) == expected == 5_362_762
    shallow = sum(parameter.numel() for parameter in vit(depth=4).parameters())
    assert shallow == expected - 8 * block


def test_a_token_is_a_patch():
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


@pytest.mark.parametrize(
    ("change", "message"),
    [({"patch": 5}, "32 x 32"), ({"heads": 5}, "dim = 192"), ({"depth": 0}, "depth")],
)
def test_layouts_that_do_not_fit_are_refused(change, message):
    with pytest.raises(InputError) as caught:
        vit(**change)
    assert message in str(caught.value)
