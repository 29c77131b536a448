"""Losses by record: their values, and what of other people's losses and networks trains."""

import warnings

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.group_norm import to_group_norm
from dpatlas.privacy.losses import (
    IGNORED,
    binary_cross_entropy,
    cross_entropy,
    squared_error,
    token_cross_entropy,
)
from dpatlas.privacy.samplers import FullBatch, Poisson
from dpatlas.privacy.training import PrivateTraining, TrainingPhase

N = 6


def seeded(make, *sizes):
    torch.manual_seed(1)
    return make(*sizes)


def normals(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


TOKENS = torch.tensor([[0, 1, 2], [2, IGNORED, IGNORED], [IGNORED] * 3])
LOSSES = {
    "classes": (cross_entropy, normals(3, 4), torch.tensor([0, 3, 1])),
    "labels": (binary_cross_entropy, normals(3, 4), (normals(3, 4) > 0).int()),
    "one label": (binary_cross_entropy, normals(3, 1), torch.tensor([0, 1, 1])),
    "numbers": (squared_error, normals(3, 2), normals(3, 2)),
    "one number": (squared_error, normals(3, 1), normals(3)),
    "tokens": (token_cross_entropy, normals(3, 3, 5), TOKENS),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_has_a_value_for_each_record_that_depends_on_it_alone(name):
    loss, output, targets = LOSSES[name]
    together = loss(output, targets)
    alone = [loss(output[i : i + 1], targets[i : i + 1]) for i in range(3)]
    assert together.shape == (3,)
    assert torch.allclose(together, torch.cat(alone), atol=1e-6)


def test_the_losses_are_those_of_torch_on_one_record():
    output, targets = normals(1, 4), torch.tensor([[0.0, 1, 1, 0]])
    expected = F.binary_cross_entropy_with_logits(output, targets, reduction="sum")
    assert binary_cross_entropy(output, targets)[0] == pytest.approx(expected.item())
    assert squared_error(output, targets)[0] == pytest.approx(F.mse_loss(output, targets).item())
    output, targets = normals(1, 4, 5), torch.tensor([[1, IGNORED, 0, 4]])
    expected = F.cross_entropy(output[0], targets[0], ignore_index=IGNORED)
    assert token_cross_entropy(output, targets)[0] == pytest.approx(expected.item())


def test_a_record_without_a_position_that_counts_has_no_loss_and_no_gradient():
    output = normals(3, 3, 5).requires_grad_()
    losses = token_cross_entropy(output, TOKENS)
    losses.sum().backward()
    assert losses[2] == 0 and not output.grad[2].any() and not output.grad[1, 1:].any()
    assert output.grad[0].any()


@pytest.mark.parametrize(
    ("loss", "output", "targets"),
    [
        (squared_error, normals(3, 2), normals(3)),
        (squared_error, normals(3, 2), normals(1, 2)),
        (binary_cross_entropy, normals(3, 2), normals(3, 1)),
        (token_cross_entropy, normals(3, 5), TOKENS),
        (token_cross_entropy, normals(3, 2, 5), TOKENS),
    ],
)
def test_targets_that_would_be_broadcast_are_refused(loss, output, targets):
    with pytest.raises(InputError, match="shape"):
        loss(output, targets)


def trained(model, x, targets, loss=cross_entropy, noise_multiplier=0.5):
    phase = TrainingPhase(Poisson(len(x), 3), noise_multiplier, 1.0, steps=2, lr=0.1)
    training = PrivateTraining(model, [phase], x, targets, noise=Noise(), loss=loss)
    with warnings.catch_warnings():
        # No layer of these is passed through record by record.
        warnings.simplefilter("error")
        training.run()
    return training


class Speaker(nn.Module):
    """Predicts the next token from the one before."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 8), nn.Linear(8, 5)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def test_labels_numbers_and_tokens_train_with_their_losses():
    x, net = normals(N, 4), seeded(nn.Linear, 4, 3)
    trained(net, x, (normals(N, 3) > 0).float(), binary_cross_entropy)
    trained(net, x, normals(N, 3), squared_error)
    tokens = torch.arange(2 * N).reshape(N, 2) % 5
    targets = torch.stack([tokens[:, 1], torch.full((N,), IGNORED)], 1)
    assert trained(seeded(Speaker), tokens, targets, token_cross_entropy).guarantee().epsilon > 0


@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(), F.cross_entropy, lambda out, y: cross_entropy(out, y).mean()]
)
def test_a_mean_over_the_batch_is_refused_in_words(loss):
    with pytest.raises(InputError, match="not a mean over records"):
        trained(seeded(nn.Linear, 4, 3), normals(N, 4), torch.arange(N) % 3, loss)


def test_a_loss_divided_by_the_batch_is_refused():
    def averaged(output, labels):
        return cross_entropy(output, labels) / len(labels)

    with pytest.raises(InputError, match="other records"):
        trained(seeded(nn.Linear, 4, 3), normals(N, 4), torch.arange(N) % 3, averaged)


def resnet(change):
    return lambda: change(torchvision.models.resnet18(num_classes=3))


def vision_transformer():
    sizes = {"image_size": 16, "patch_size": 8, "hidden_dim": 16, "mlp_dim": 32}
    return torchvision.models.VisionTransformer(**sizes, num_layers=2, num_heads=2, num_classes=3)


class Encoder(nn.Module):
    """A small transformer encoder over tokens."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.embedding = nn.Embedding(20, 16)
        self.position = nn.Parameter(torch.zeros(1, 7, 16))
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens) + self.position).mean(1))


IMAGES, LABELS = normals(N, 3, 16, 16), torch.arange(N) % 3
NETWORKS = {
    "resnet18 with GroupNorm": (resnet(to_group_norm), IMAGES),
    "resnet18 with frozen BatchNorm": (resnet(lambda model: model.eval()), IMAGES),
    "torchvision's vision transformer": (vision_transformer, IMAGES),
    "transformer encoder": (Encoder, torch.arange(7 * N).reshape(N, 7) % 20),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_a_library_trains_without_a_change(name):
    make, x = NETWORKS[name]
    model = seeded(make)
    before = [value.clone() for value in model.parameters()]
    trained(model, x, LABELS)
    moved = [(value != old).any() for value, old in zip(model.parameters(), before, strict=True)]
    assert all(moved)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torchvision's vision transformer", "transformer encoder"])
def test_its_clipped_sum_is_that_of_a_loop_over_records(name):
    make, x = NETWORKS[name]
    model, bound = seeded(make), 0.5
    parameters = list(model.parameters())
    total = [torch.zeros_like(value) for value in parameters]
    for number in range(N):
        row = slice(number, number + 1)
        loss = cross_entropy(model(x[row]), LABELS[row]).sum()
        gradients = torch.autograd.grad(loss, parameters)
        norm = torch.sqrt(sum(each.square().sum() for each in gradients))
        for each, gradient in zip(total, gradients, strict=True):
            each += gradient * min(1.0, bound / norm.item())
    sums = {}

    def see(step, found):
        sums.update({key: each.clone() for key, each in found.items()})

    phase = TrainingPhase(FullBatch(N), 0.0, bound, steps=1, lr=0.1)
    PrivateTraining(
        model,
        [phase],
        x,
        LABELS,
        noise=Noise(),
        on_update=lambda step, found: sums.update(
            {key: each.clone() for key, each in found.items()}
        ),
    ).run()
    for each, expected in zip(sums.values(), total, strict=True):
        assert torch.allclose(each, expected, atol=2e-4)
