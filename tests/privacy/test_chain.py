"""A network that is a chain of layers is passed through without autograd, and nothing else is."""

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import records, seeded
from torch import nn

from dpatlas.errors import InputError
from dpatlas.models.build import build
from dpatlas.models.small_cnn import SIZES
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.per_record import NetworkGradients, PerRecordWarning

IMAGE = (3, 8, 8)


def smooth(output, labels):
    return F.cross_entropy(output, labels, reduction="none", label_smoothing=0.1)


def in_place(output, labels):
    return cross_entropy(output.mul_(2), labels)


def chain(middle=(), last=8 * 4):
    return nn.Sequential(
        nn.Unflatten(1, IMAGE),
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.GroupNorm(4, 8),
        nn.ReLU(inplace=True),
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8, affine=False), nn.ReLU()),
        *middle,
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(last, 5),
    )


def rows(dtype=torch.float32):
    x, labels = records((3 * 8 * 8,), rows=12, dtype=dtype)
    return x, labels


def both_ways(model, loss=cross_entropy, **settings):
    """Clipped sums through the chain and through autograd."""
    x, labels = rows(next(model.parameters()).dtype)
    labels = labels[::2].repeat_interleave(2)
    kernels = [NetworkGradients(model, loss, **settings) for _ in range(2)]
    assert kernels[0].chain is not None and kernels[0].chain.holds(x)
    kernels[1].chain = None
    return [kernel.clipped_sum(x, labels, 0.3) for kernel in kernels]


def same_bits(one, other):
    assert all(torch.equal(one.gradients[name], other.gradients[name]) for name in other.gradients)
    assert torch.equal(one.norms, other.norms) and one.skipped == other.skipped


@pytest.mark.parametrize("frozen", [(), ("1",), ("1", "2", "4"), ("7",)], ids=str)
@pytest.mark.parametrize("loss", [cross_entropy, smooth, in_place])
@pytest.mark.parametrize("settings", [{}, {"views": 2}, {"clipping": "per-layer"}], ids=str)
def test_both_ways_through_a_chain_give_the_same(frozen, loss, settings):
    model = seeded(chain)
    for name in frozen:
        model.get_submodule(name).requires_grad_(False)
    one, other = both_ways(model, loss, **settings)
    # Pooling is a product in the chain.
    for name, value in other.gradients.items():
        torch.testing.assert_close(one.gradients[name], value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one.norms, other.norms, rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", SIZES)
def test_networks_of_the_tiers_are_chains(size):
    model = build(f"small-cnn-{size}", (3, 8, 8), 5, key="chain", run=0, base_seed=0)
    one, other = both_ways(model)
    for name, value in other.gradients.items():
        torch.testing.assert_close(one.gradients[name], value, rtol=1e-5, atol=1e-6)


def test_a_loss_that_reads_no_output_is_refused_and_labels_are_checked():
    model, (x, labels) = seeded(chain), rows(torch.float64)
    with pytest.raises(InputError, match="no gradient of the loss reaches it"):
        NetworkGradients(model, lambda output, labels: output.detach().sum(1)).clipped_sum(
            x, labels, 1.0
        )
    kernel = NetworkGradients(model)
    kernel.clipped_sum(x, labels, 1.0)
    with pytest.raises(IndexError):
        kernel.clipped_sum(x, labels + 5, 1.0)


def doubled(module, inputs, output):
    return 2 * output


def alter(model, how):
    layer = model[4]
    match how:
        case "hook":
            layer[2].register_forward_hook(doubled)
        case "hook of a sequence":
            layer.register_forward_hook(doubled)
        case "forward":
            before = layer[2].forward
            layer[2].forward = lambda x: 2 * before(x)
        case "replaced":
            layer[2] = nn.ELU()
        case "added":
            layer.append(nn.Tanh())


@pytest.mark.parametrize("how", ["hook", "hook of a sequence", "forward", "replaced", "added"])
def test_what_changes_a_layer_later_changes_the_gradients(how):
    model, (x, labels) = seeded(chain), rows(torch.float64)
    kernel = NetworkGradients(model)
    before = kernel.clipped_sum(x, labels, 0.3).gradients["1.weight"]
    alter(model, how)
    assert not kernel.chain.holds(x)
    found = kernel.clipped_sum(x, labels, 0.3).gradients["1.weight"]
    fresh = NetworkGradients(model)
    fresh.chain = None
    expected = fresh.clipped_sum(x, labels, 0.3).gradients["1.weight"]
    assert torch.equal(found, expected) and not torch.allclose(found, before)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def frozen(layer):
    return layer.requires_grad_(False)


@pytest.mark.parametrize(
    "part",
    [
        lambda: Residual(nn.Conv2d(8, 8, 3, padding=1)),
        lambda: nn.ELU(),
        lambda: frozen(nn.Conv2d(8, 8, 3, padding="same")),
        lambda: frozen(nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")),
        lambda: nn.utils.parametrizations.weight_norm(frozen(nn.Conv2d(8, 8, 3, padding=1))),
    ],
    ids=["residual", "elu", "same padding", "reflected padding", "parametrised"],
)
def test_other_networks_go_through_autograd(part):
    made = part()
    model = seeded(lambda: chain((frozen(made) if not isinstance(made, Residual) else made,)))
    x, labels = rows(torch.float64)
    kernel = NetworkGradients(model)
    assert kernel.chain is None
    assert kernel.clipped_sum(x, labels, 0.3).skipped == 0


def test_a_frozen_layer_may_be_used_twice():
    relu = nn.ReLU()
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), relu, nn.Linear(6, 6), relu))
    x, labels = records((4,))
    kernel = NetworkGradients(model)
    assert kernel.chain is not None
    found = kernel.clipped_sum(x, labels, 0.3)
    kernel.chain = None
    same_bits(found, kernel.clipped_sum(x, labels, 0.3))


def test_a_bare_layer_that_is_passed_through_record_by_record_is_no_chain():
    layer, (x, labels) = nn.Linear(192, 5), rows()
    by_record = NetworkGradients(layer, smooth, way="network")
    assert by_record.chain is None
    expected = NetworkGradients(layer, smooth).clipped_sum(x, labels, 0.3)
    with pytest.warns(PerRecordWarning):
        found = by_record.clipped_sum(x, labels, 0.3)
    torch.testing.assert_close(found.gradients, expected.gradients)
