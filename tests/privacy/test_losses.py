"""Losses by record: what they ask of targets, and positions that do not count."""

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import by_loop, clipped_sum, distance, records, seeded
from torch import nn

from dpatlas.errors import InputError
from dpatlas.privacy.losses import (
    TokenCrossEntropy,
    binary_cross_entropy,
    cross_entropy,
    squared_error,
)
from dpatlas.privacy.per_record import NetworkGradients

WORDS = torch.randint(0, 9, (6, 7), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("bound", [1e-2, 1e6])
def test_a_record_s_loss_is_the_mean_over_its_positions_that_count(bound):
    labels = WORDS.clone()
    # Some positions, and all of record 3.
    labels[:, ::3], labels[3] = -100, -100
    model = seeded(lambda: nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4), nn.Linear(4, 9)))
    counted = [row for row in range(6) if row != 3]
    losses = (F.cross_entropy(model(WORDS[[row]])[0], labels[row]) for row in counted)
    found = NetworkGradients(model, TokenCrossEntropy()).clipped_sum(WORDS, labels, bound)
    assert found.skipped == 0
    assert distance(found.gradients, clipped_sum(by_loop(model, losses), bound)) < 1e-12


@pytest.mark.parametrize(
    ("loss", "match"),
    [
        (nn.MSELoss(reduction="none"), r"loss: found .* shape \(1, 3\) .*reduction='none'"),
        (lambda output, targets: None, "loss: found a result of shape NoneType"),
    ],
)
def test_a_loss_of_several_numbers_or_none_is_refused_with_what_to_do(loss, match):
    with pytest.raises(InputError, match=match):
        NetworkGradients(nn.Linear(4, 3), loss).trace(torch.zeros(6, 4), torch.zeros(6, 3))


@pytest.mark.parametrize(
    ("loss", "output", "targets"),
    [
        (squared_error, (6, 3), (6,)),
        (squared_error, (6, 1), (3, 2)),
        (binary_cross_entropy, (6, 3), (6, 1)),
    ],
)
def test_targets_that_would_broadcast_are_refused(loss, output, targets):
    with pytest.raises(InputError, match="one target an output"):
        loss(torch.ones(*output), torch.ones(*targets))


def test_a_label_a_position_and_a_known_reduction_are_asked_for():
    with pytest.raises(InputError, match="one label a position"):
        TokenCrossEntropy()(torch.zeros(6, 7, 9), WORDS[:, :3])
    with pytest.raises(InputError, match="reduction"):
        TokenCrossEntropy(reduction="none")
    x, labels = records((9,))
    torch.testing.assert_close(TokenCrossEntropy()(x, labels), cross_entropy(x, labels))
