"""Losses by record, and their gradients with respect to a network's output.

A loss is any function of (outputs, targets) that gives one value per record, (records,).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from dpatlas.base.guard import one_of
from dpatlas.errors import InputError

# Of a network's output and the targets, one value a record.
Loss = Callable[..., Tensor]


def cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of one class per record, (records,).

    output (records, classes), labels (records,) whole numbers.
    """
    return F.cross_entropy(_logits(output), labels, reduction="none")


def binary_cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    """Mean over a record's labels of the binary cross-entropy of logits, (records,).

    output (records, ...), targets of the same shape, from 0 to 1: any number of labels may hold for
    a record. InputError for other shapes.
    """
    output = _logits(output)
    targets = _of_shape(output, targets, "binary_cross_entropy")
    return _mean(F.binary_cross_entropy_with_logits(output, targets, reduction="none"))


def squared_error(output: Tensor, targets: Tensor) -> Tensor:
    """Mean over a record's outputs of (output - target)^2, (records,).

    output (records, ...), targets of the same shape; (records, 1) and (records,) fit each other.
    InputError for other shapes, which would broadcast over records.
    """
    output = _logits(output)
    return _mean((output - _of_shape(output, targets, "squared_error")).square())


@dataclass(frozen=True)
class TokenCrossEntropy:
    """Cross-entropy at each position of a record, without the positions to be ignored, (records,).

    output (records, ..., classes), labels (records, ...) whole numbers: for language modelling the
    next word at each position. Positions labelled `ignore_index` count for nothing. `reduction` is
    over a record's own positions: their `mean` or their `sum`; a record without any counts as 0.
    """

    ignore_index: int = -100
    reduction: str = "mean"

    def __post_init__(self) -> None:
        one_of("mean", "sum").check("reduction", self.reduction)

    def __call__(self, output: Tensor, labels: Tensor) -> Tensor:
        """The loss of each record; InputError for labels of another shape than the positions'."""
        output = _logits(output)
        if labels.shape != output.shape[:-1]:
            found = f"labels of shape {tuple(labels.shape)} for outputs of {tuple(output.shape)}"
            raise InputError("loss TokenCrossEntropy", found, "one label a position, classes last")
        losses = F.cross_entropy(
            output.flatten(0, -2),
            labels.flatten(),
            ignore_index=self.ignore_index,
            reduction="none",
        )
        sums = losses.view(len(labels), -1).sum(1)
        if self.reduction == "sum":
            return sums
        counted = (labels != self.ignore_index).view(len(labels), -1).sum(1)
        return sums / counted.clamp_min(1)


def losses_of(loss: Loss, output: Any, targets: Any) -> Tensor:
    """The loss of each row; InputError for a result of another shape than (rows,)."""
    losses, rows = loss(output, targets), len(_logits(output))
    if losses.shape != (rows,):
        found = f"a result of shape {tuple(losses.shape)} for {rows} records"
        allowed = "one value a record (reduction='none', then a mean over each record's own values)"
        raise InputError("loss", found, allowed)
    return losses


def _logits(output: Any) -> Tensor:
    """The output, or the logits of an output that has more than one part."""
    found: Tensor = getattr(output, "logits", output)
    return found


def _of_shape(output: Tensor, targets: Tensor, name: str) -> Tensor:
    """The targets in the output's type and shape."""
    if targets.numel() != output.numel() or len(targets) != len(output):
        found = f"targets of shape {tuple(targets.shape)} for outputs of {tuple(output.shape)}"
        raise InputError(f"loss {name}", found, "one target an output")
    return targets.to(output.dtype).reshape(output.shape)


def _mean(losses: Tensor) -> Tensor:
    return losses.reshape(len(losses), -1).mean(1)
