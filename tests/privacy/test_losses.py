"""Losses by record: gradients of a per-record loop, in every kind of task, and none of a batch."""

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import by_loop, clipped_sum, distance, records, seeded
from torch import nn

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.losses import (
    TokenCrossEntropy,
    binary_cross_entropy,
    cross_entropy,
    squared_error,
)
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

ROWS, WORDS = 6, 7


def language():
    return nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4), nn.Linear(4, 9))


def ignored(labels):
    """With some positions, and all of record 3, to be ignored."""
    labels = labels.clone()
    labels[:, ::3], labels[3] = -100, -100
    return labels


def draws(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def words(high=9):
    return torch.randint(0, high, (ROWS, WORDS), generator=torch.Generator().manual_seed(5))


# Name -> (network, records, targets, our loss, torch's loss of one record).
TASKS = {
    "labels": (
        lambda: nn.Linear(4, 3),
        lambda: (draws(ROWS, 4), (draws(ROWS, 3) > 0).double()),
        binary_cross_entropy,
        F.binary_cross_entropy_with_logits,
    ),
    "one number": (
        lambda: nn.Linear(4, 1),
        lambda: (draws(ROWS, 4), draws(ROWS)),
        squared_error,
        lambda output, targets: F.mse_loss(output[:, 0], targets),
    ),
    "several numbers": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3))),
        lambda: (draws(ROWS, 4), draws(ROWS, 2, 3)),
        squared_error,
        F.mse_loss,
    ),
    "words, mean": (
        language,
        lambda: (words(), ignored(words())),
        TokenCrossEntropy(),
        lambda output, labels: F.cross_entropy(output[0], labels[0]),
    ),
    "words, sum": (
        language,
        lambda: (words(), words()),
        TokenCrossEntropy(ignore_index=2, reduction="sum"),
        lambda output, labels: F.cross_entropy(
            output[0], labels[0], ignore_index=2, reduction="sum"
        ),
    ),
    "a function of one's own, on maps": (
        lambda: nn.Conv2d(2, 3, 3, padding=1),
        lambda: (draws(ROWS, 2, 5, 5), words(3)[:, :5, None].expand(-1, -1, 5)),
        lambda output, labels: F.cross_entropy(output, labels, reduction="none").mean((1, 2)),
        F.cross_entropy,
    ),
}


@pytest.mark.parametrize("bound", [1e-2, 1e6])
@pytest.mark.parametrize("name", TASKS)
def test_the_clipped_sum_of_every_task_equals_a_per_record_loop(name, bound):
    make, data, ours, theirs = TASKS[name]
    model, (x, targets) = seeded(make), data()
    each = (slice(row, row + 1) for row in range(ROWS))
    gradients = by_loop(model, (theirs(model(x[one]), targets[one]) for one in each))
    # Without any position that counts, torch's mean is 0 / 0.
    expected = {name: rows.nan_to_num(0) for name, rows in gradients.items()}
    found = NetworkGradients(model, ours).clipped_sum(x, targets, bound)
    assert found.skipped == 0
    assert distance(found.gradients, clipped_sum_or_zero(expected, bound)) < 1e-12 * max(1, bound)


def clipped_sum_or_zero(gradients, bound):
    """`clipped_sum`, in which a gradient may be zero."""
    alive = sum(rows.flatten(1).abs().sum(1) for rows in gradients.values()) > 0
    return clipped_sum({name: rows[alive] for name, rows in gradients.items()}, bound)


@pytest.mark.parametrize(
    ("loss", "match"),
    [
        (
            nn.MSELoss(reduction="none"),
            r"loss: found a result of shape \(1, 3\) .*reduction='none'",
        ),
        (lambda output, targets: None, "loss: found a result of shape NoneType"),
        (
            lambda output, targets: squared_error(output, targets) / len(output),
            "loss.*isolate=True",
        ),
        (
            lambda output, targets: squared_error(output / output.std(), targets),
            "loss.*isolate=True",
        ),
    ],
)
def test_a_loss_of_several_numbers_or_of_a_batch_is_refused_with_what_to_do(loss, match):
    phase, x, targets = TrainingPhase(FullBatch(6), 1.0, 1.0, 1, 0.1), draws(6, 4), draws(6, 3)
    with pytest.raises(InputError, match=match):
        PrivateTraining(seeded(nn.Linear, 4, 3), [phase], x, targets, noise=Noise(), loss=loss)


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
        loss(draws(*output), draws(*targets))


def test_a_label_a_position_and_a_known_reduction_are_asked_for():
    with pytest.raises(InputError, match="one label a position"):
        TokenCrossEntropy()(draws(6, 7, 9), words()[:, :3])
    with pytest.raises(InputError, match="reduction"):
        TokenCrossEntropy(reduction="none")
    x, labels = records((9,))
    torch.testing.assert_close(TokenCrossEntropy()(x, labels), cross_entropy(x, labels))


def test_a_state_of_another_setting_of_the_loss_is_refused():
    def training(ignore_index):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 4))
        tokens = torch.arange(8).reshape(4, 2) % 4
        phase = TrainingPhase(FullBatch(4), 1.0, 1.0, steps=2, lr=0.1)
        return PrivateTraining(
            model,
            [phase],
            tokens,
            tokens,
            noise=Noise("a loss", source="keyed"),
            shared_noise="both",
            loss=TokenCrossEntropy(ignore_index),
        )

    first = training(0)
    first.step()
    training(0).restore(*first.state())
    with pytest.raises(InputError, match="another plan: loss"):
        training(1).restore(*first.state())
