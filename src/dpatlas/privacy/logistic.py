"""Softmax regression in closed form: the gradient of a record is delta x^T, delta = p - onehot.

    c_i = min(1, C / (||delta_i|| sqrt(||x_i||^2 + 1))),    sum_i g_i c_i = (delta c)^T X,

where the 1 is for the bias, if there is one. No autograd is needed, and ||x_i||^2 is constant.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.base.guard import checked, real
from dpatlas.models.precision import exact
from dpatlas.privacy.clipping import bad_records, clip_factors, empty_sum
from dpatlas.privacy.norms import in_blocks, inputs_norms2
from dpatlas.privacy.sums import ClippedSum

BLOCK = 4096


class SoftmaxGradients:
    """Clipped per-record gradients of the cross-entropy of one linear layer (outputs, d)."""

    def __init__(self, layer: nn.Linear, prefix: str = "", trained: Sequence[str] | None = None):
        self.layer, self.prefix = layer, prefix
        self.order = [
            prefix + name
            for name, value in layer.named_parameters()
            if (value.requires_grad if trained is None else prefix + name in trained)
        ]

    def empty(self) -> ClippedSum:
        """The clipped sum over no records."""
        return empty_sum(self.layer, self.order, self.prefix)

    def constants(self, x: Tensor) -> Tensor:
        """Constant factors of the squared norms: ||x_i||^2, plus 1 for the bias; float64 (n,)."""
        norms2 = x.new_zeros(len(x), dtype=torch.float64)
        if f"{self.prefix}weight" in self.order:
            # In blocks: a float64 copy of all records would take twice the memory of the data.
            norms2 = torch.cat([inputs_norms2(rows) for rows in x.split(BLOCK)])
        if f"{self.prefix}bias" in self.order:
            norms2 = norms2 + 1
        return norms2

    @checked(max_grad_norm=real(gt=0))
    @torch.no_grad()
    @exact()
    def clipped_sum(
        self,
        x: Tensor,
        labels: Tensor,
        max_grad_norm: float,
        constants: Tensor | None = None,
        draws: Any = None,
    ) -> ClippedSum:
        """Sum over records of clipped gradients; x (records, d), labels (records,) int64.

        `constants` of these records may be passed to avoid computing them again. A record that is
        not finite contributes zero.
        """
        if len(x) == 0:
            return self.empty()
        layer = self.layer
        # Shape (classes, records): the softmax runs along long rows, and no product is transposed.
        output = torch.mm(layer.weight.detach(), x.T)
        if layer.bias is not None:
            output += layer.bias.detach().unsqueeze(1)
        delta = torch.softmax(output, 0)
        delta.scatter_add_(0, labels.unsqueeze(0), delta.new_full((1, len(x)), -1.0))
        norms2 = delta.double().square().sum(0)
        norms2 *= self.constants(x) if constants is None else constants
        total = norms2.to(x.dtype)
        bad, skipped = bad_records(total)
        if bad is not None:
            x, delta = torch.where(bad[:, None], 0, x), torch.where(bad, 0, delta)
        delta *= clip_factors(norms2, max_grad_norm).to(x.dtype)
        gradient_of = {
            "weight": lambda: in_blocks(lambda d, rows: torch.mm(d.T, rows), 1, delta.T, x),
            "bias": lambda: delta.sum(1),
        }
        start = len(self.prefix)
        gradients = {name: gradient_of[name[start:]]() for name in self.order}
        return ClippedSum(gradients, total.sqrt_(), skipped)
