"""The private engine clips the gradients of single records in every kind of network."""

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import by_loop, clipped_sum, norms
from torch import nn

from dpatlas.models.build import build
from dpatlas.privacy.per_record import NetworkGradients

# Options that keep it small, side of the images, and what is trained.
CASES = {
    "alexnet": ({}, 32, ""),
    "mobilenet-v3": ({"narrower": 8}, 32, ""),
    "resnet18": ({}, 8, ("layer4.1", "head")),
    "wrn10-1": ({}, 8, ""),
    "wrn10-2-stride2": ({}, 8, ""),
    "imagenet-resnet18": ({}, 20, ("body.layer4.1", "head")),
    "imagenet-deit-tiny": ({}, 20, ("body.blocks.11", "body.norm", "head")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_clipped_sum_is_that_of_a_loop_over_records(name):
    options, side, trained = CASES[name]
    net = build(name, (3, side, side), 5, key="test", run=0, base_seed=0, **options).double()
    for path, parameter in net.named_parameters():
        parameter.requires_grad_(path.startswith(trained))
    draws = torch.Generator().manual_seed(3)
    x = torch.randn(3, 3 * side**2, generator=draws, dtype=torch.float64)
    labels = torch.tensor([0, 3, 1])
    rows = zip(x[:, None], labels[:, None], strict=True)
    gradients = by_loop(net, (F.cross_entropy(net(row), label) for row, label in rows))
    # Some records are clipped and some are not.
    bound = float(norms(gradients).median())
    expected = clipped_sum(gradients, bound)
    found = NetworkGradients(net).clipped_sum(x, labels, bound)
    assert found.norms.tolist() == pytest.approx(norms(gradients).tolist(), rel=1e-6)
    assert set(found.gradients) == set(expected) and found.skipped == 0
    for path, value in expected.items():
        torch.testing.assert_close(found.gradients[path], value, rtol=1e-6, atol=1e-7)


class Counting(nn.Module):
    """Attention, and a buffer that every call moves, whatever the records."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.head(self.layer(x).mean(1))


def test_a_network_with_attention_may_count_its_calls():
    torch.manual_seed(0)
    net, x, labels = Counting(), torch.randn(4, 5, 8), torch.tensor([0, 1, 2, 0])
    rows = zip(x[:, None], labels[:, None], strict=True)
    expected = norms(by_loop(net, (F.cross_entropy(net(row), label) for row, label in rows)))
    calls = float(net.calls)
    kernel = NetworkGradients(net)
    torch.testing.assert_close(
        kernel.clipped_sum(x, labels, 0.1).norms, expected, rtol=1e-5, atol=0, check_dtype=False
    )
    kernel.record.update_buffers()
    assert float(net.calls) == calls + 1
