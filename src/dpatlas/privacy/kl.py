"""The KL kernel: every record's gradient gap from one forward and one backward pass.

Noisy gradient descent `W <- W - eta grad L(W; D) + sqrt(2 eta sigma^2) Z` on two neighbouring data
sets pays `eta ||grad L(W; D) - grad L(W; D')||^2 / (4 sigma^2)` of KL per step. For the mean loss
that gap is a quadratic in the record's gradient g_z: it needs ||g_z||^2, <g_z, gbar> and
||gbar||^2 only. In a linear layer the per-record gradient is the outer product delta_z a_z^T, so

    ||g_z||^2 = ||a_z||^2 ||delta_z||^2     and     <g_z, G> = delta_z^T G a_z,

and no per-record gradient is ever stored.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dpatlas.formulas.kl_privacy.theorems import neighbour_gap
from dpatlas.models.mlp import backward_through, layer_inputs
from dpatlas.models.precision import passes
from dpatlas.models.products import times, times_transpose


@dataclass
class RecordGaps:
    """Gradient terms of every record at one step.

    `gradient`: gbar, gradient of the mean loss over the n training records, one tensor per layer.
    `g_norm2`, `inner`: ||g_z||^2 and <g_z, gbar>, float64, shape (records,), training records
    first. `gbar_norm2`: ||gbar||^2, float64 scalar. `losses`: shape (records,).
    """

    gradient: list[Tensor]
    g_norm2: Tensor
    inner: Tensor
    gbar_norm2: Tensor
    losses: Tensor
    n_train: int

    def squared_gaps(self) -> Tensor:
        """Squared gradient gap to the neighbour that differs in each record, shape (records,).

        Training records are removed, the others added (Ye et al. 2023, Sec. 5).
        """
        n = self.n_train
        gaps = [
            neighbour_gap(name, n, self.g_norm2[part], self.gbar_norm2, self.inner[part])
            for name, part in (("remove", slice(None, n)), ("add", slice(n, None)))
        ]
        # The exact value is a squared norm; rounding can take a vanishing one below zero.
        return torch.cat(gaps).clamp_min_(0)


def loss_and_delta(output: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each record and its gradient with respect to the output.

    One output: logistic loss with labels 0, 1 read as -1, +1. Two or more: cross-entropy of the
    softmax with one-hot labels. `labels` has dtype int64, shape (records,).
    """
    if output.shape[1] == 1:
        sign = (2 * labels - 1).to(output.dtype)
        margin = sign * output[:, 0]
        return -F.logsigmoid(margin), (-sign * torch.sigmoid(-margin)).unsqueeze(1)
    log_p = torch.log_softmax(output, 1)
    delta = log_p.exp()
    column = labels.unsqueeze(1)
    # p - 1 as minus the sum of the other probabilities: subtracting 1 would lose every digit where
    # the record's label has a probability near 1.
    delta.scatter_(1, column, 0)
    delta.scatter_(1, column, -delta.sum(1, keepdim=True))
    return -log_p.gather(1, column).squeeze(1), delta


def squared_row_norms(rows: Tensor) -> Tensor:
    """||row||^2, shape (records,), float64.

    torch sums by blocks, so float32 rows of thousands lose no more than their last digit; a sum in
    float64 would first convert all rows, at six times the cost.
    """
    return rows.square().sum(1).double()


def record_gaps(
    weights: list[Tensor],
    x: Tensor,
    labels: Tensor,
    n_train: int,
    x_norm2: Tensor | None = None,
) -> RecordGaps:
    """Gradient of the training loss and the gap terms of every record.

    x: (records, d), the n_train training records first, then the records to add. `x_norm2`
    (records,) may be passed to save recomputing what never changes in full-batch training.
    """
    with passes():
        inputs, output = layer_inputs(weights, x)
    losses, delta = loss_and_delta(output, labels)
    g_norm2 = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    inner = torch.zeros_like(g_norm2)
    gbar_norm2 = torch.zeros((), dtype=torch.float64, device=x.device)
    gradient: list[Tensor] = [x] * len(weights)
    for layer in reversed(range(len(weights))):
        a = inputs.pop()
        mean = torch.mm(delta[:n_train].T, a[:n_train]).div_(n_train)
        gradient[layer] = mean
        a_norm2 = x_norm2 if layer == 0 and x_norm2 is not None else squared_row_norms(a)
        g_norm2 += a_norm2 * squared_row_norms(delta)
        inner += _bilinear(delta, mean, a)
        gbar_norm2 += squared_row_norms(mean).sum()
        if layer:
            with passes():
                delta = backward_through(delta, weights[layer], a)
    return RecordGaps(gradient, g_norm2, inner, gbar_norm2, losses, n_train)


def _bilinear(delta: Tensor, matrix: Tensor, a: Tensor) -> Tensor:
    """delta_z^T M a_z for each record, by the smaller of the two products."""
    if delta.shape[1] <= a.shape[1]:
        return times_transpose(a, matrix).mul_(delta).sum(1).double()
    return times(delta, matrix).mul_(a).sum(1).double()


def noisy_step(
    weights: list[Tensor], gradient: list[Tensor], noise: Tensor, eta: float, sigma: float
) -> None:
    """`W <- W - eta gbar + sqrt(2 eta sigma^2) Z`, in place; `noise` is Z of all layers, flat."""
    scale = math.sqrt(2 * eta) * sigma
    start = 0
    for weight, mean in zip(weights, gradient, strict=True):
        part = noise[start : start + weight.numel()].view_as(weight)
        weight.sub_(mean, alpha=eta).add_(part, alpha=scale)
        start += weight.numel()


def record_signals(weights: list[Tensor], x: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(a_z, delta_z) of every layer, the two factors of each record's gradient."""
    inputs, output = layer_inputs(weights, x)
    _, delta = loss_and_delta(output, labels)
    signals = []
    for layer in reversed(range(len(weights))):
        signals.append((inputs[layer], delta))
        if layer:
            delta = backward_through(delta, weights[layer], inputs[layer])
    return signals[::-1]


def signal_changes(
    before: list[tuple[Tensor, Tensor]], after: list[tuple[Tensor, Tensor]]
) -> Tensor:
    """||g_z - g'_z||^2 of every record from two lists of factors, float64, shape (records,).

    delta a^T - delta' a'^T = (delta - delta') a^T + delta' (a - a')^T. The products are taken in
    float64 because the difference may be tiny compared with the norms.
    """
    total = torch.zeros((), dtype=torch.float64)
    for (a, delta), (b, gamma) in zip(before, after, strict=True):
        a, delta, b, gamma = a.double(), delta.double(), b.double(), gamma.double()
        da, dd = a - b, delta - gamma
        cross = (dd * gamma).sum(1) * (a * da).sum(1)
        total = total + dd.square().sum(1) * a.square().sum(1)
        total = total + gamma.square().sum(1) * da.square().sum(1) + 2 * cross
    return total.clamp_min(0)
