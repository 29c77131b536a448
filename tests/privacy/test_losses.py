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
    ("loss", "output", "targets", "match"),
    [
        (squared_error, (6, 3), (6,), "one target an output"),
        (squared_error, (6, 1), (3, 2), "one target an output"),
        (binary_cross_entropy, (6, 3), (6, 1), "one target an output"),
        (TokenCrossEntropy(), (6, 7, 9), (6, 3), "one label a position"),
    ],
)
def test_targets_that_would_broadcast_are_refused(loss, output, targets, match):
    with pytest.raises(InputError, match=match):
        loss(torch.ones(*output), torch.ones(*targets))


def test_labels_without_positions_are_classes_and_a_reduction_is_one_of_two():
    x, labels = records((9,))
    torch.testing.assert_close(TokenCrossEntropy()(x, labels), cross_entropy(x, labels))
    with pytest.raises(InputError, match="reduction"):
        TokenCrossEntropy(reduction="none")
