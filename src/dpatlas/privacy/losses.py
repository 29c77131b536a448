"""Losses by record, and their gradients with respect to a network's output.

The engine takes any function of (output, targets) that gives one value per record, (records,); a
mean over the batch is refused, since it lets records meet in the divisor.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dpatlas.errors import InputError
from dpatlas.privacy.probe import Loss, losses_of

# A target that does not count, as in torch.
IGNORED = -100


def cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    """Each record's loss, shape (records,)."""
    return F.cross_entropy(output, labels, reduction="none")


def binary_cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    """Of several labels a record, each there or not: (records,), the sum over its labels.

    output (records, labels, ...): logits; targets of the same shape, from 0 to 1.
    """
    targets = _of_shape(targets, output).to(output.dtype)
    losses = F.binary_cross_entropy_with_logits(output, targets, reduction="none")
    return losses.flatten(1).sum(1)


def squared_error(output: Tensor, targets: Tensor) -> Tensor:
    """Of regression: (records,), the mean of squared errors over a record's outputs.

    output (records, outputs, ...); targets of the same shape, or (records,) for a single output.
    """
    targets = _of_shape(targets, output).to(output.dtype)
    return (output - targets).square().flatten(1).mean(1)


def token_cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    """Of language modelling: (records,), the mean over a record's own positions that count.

    output (records, positions, classes); targets (records, positions) int64, `IGNORED` where a
    position does not count. A record without any has the loss 0.
    """
    if output.dim() != 3 or targets.shape != output.shape[:2]:
        found = f"outputs of shape {tuple(output.shape)}, targets of {tuple(targets.shape)}"
        allowed = "(records, positions, classes) and (records, positions)"
        raise InputError("token_cross_entropy", found, allowed)
    losses = F.cross_entropy(
        output.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED
    )
    counted = (targets != IGNORED).sum(1)
    return losses.unflatten(0, targets.shape).sum(1) / counted.clamp(min=1)


def _of_shape(targets: Tensor, output: Tensor) -> Tensor:
    """Targets in the output's shape; InputError where they would be broadcast otherwise."""
    if targets.shape == output.shape[:1] and output[0].numel() == 1:
        return targets.reshape(output.shape)
    if targets.shape != output.shape:
        raise InputError("targets", f"shape {tuple(targets.shape)}", f"{tuple(output.shape)}")
    return targets


def output_gradient(
    loss: Loss, x: Tensor, output: Tensor, labels: Tensor, views: int
) -> Tensor | None:
    """The gradient of the summed losses, each divided by `views`, with respect to `output`.

    x, output, labels: (rows, ...), of which `output` is what a network gave for x. None if the loss
    has no gradient. Raises InputError as `losses_of`.
    """
    if loss is cross_entropy and output.dim() == 2 and labels.dim() == 1:
        return _of_cross_entropy(output, labels, views)
    with torch.enable_grad():
        leaf = output.detach().requires_grad_()
        # A copy, which the loss may change in place.
        losses = losses_of(lambda _: leaf.clone(), loss, x, labels)
        if losses.requires_grad:
            # Of a scalar: an explicit output gradient makes torch import sympy for a second.
            (losses.sum() / views).backward()
    return leaf.grad


def _of_cross_entropy(output: Tensor, labels: Tensor, views: int) -> Tensor:
    """What autograd computes, operation by operation, in a quarter of its time."""
    logs = F.log_softmax(output, 1)
    # Refuses labels out of range, which the backward pass would not.
    losses = F.nll_loss(logs, labels, reduction="none")
    each = torch.full_like(losses, 1 / views)
    none = losses.new_zeros(())
    chosen = torch.ops.aten.nll_loss_backward(each, logs, labels, None, 0, -100, none)
    return torch.ops.aten._log_softmax_backward_data(chosen, logs, 1, output.dtype)
