"""Softmax regression in closed form: the gradient of a record is delta x^T, delta = p - onehot.

    c_i = min(1, C / (||delta_i|| sqrt(||x_i||^2 + 1))),    sum_i g_i c_i = (delta c)^T X,

the 1 for the bias where there is one. Nothing here needs autograd, and ||x_i||^2 never changes.
"""

import torch
from torch import Tensor, nn

from dpatlas.core.guard import checked, real
from dpatlas.privacy.clipping import ClippedSum, clip_factors, empty_sum


class SoftmaxGradients:
    """Clipped per-record gradients of the cross-entropy of one linear layer (outputs, d)."""

    def __init__(self, layer: nn.Linear, prefix: str = ""):
        self.layer, self.prefix = layer, prefix
        self.order = [
            prefix + name for name, value in layer.named_parameters() if value.requires_grad
        ]

    def outputs(self, x: Tensor) -> int:
        """Number of classes."""
        return self.layer.out_features

    def empty(self) -> ClippedSum:
        """The clipped sum over no record."""
        return empty_sum(self.layer, self.order, self.prefix)

    @checked(max_grad_norm=real(gt=0))
    def clipped_sum(
        self,
        x: Tensor,
        labels: Tensor,
        max_grad_norm: float,
        x_norm2: Tensor | None = None,
    ) -> ClippedSum:
        """Sum over records of clipped gradients; x (records, d), labels (records,) int64.

        `x_norm2` (records,) saves computing what never changes. A record that is not finite
        contributes zero.
        """
        if len(x) == 0:
            return self.empty()
        layer = self.layer
        weight = layer.weight.detach()
        output = torch.mm(x, weight.T)
        if layer.bias is not None:
            output += layer.bias.detach()
        delta = torch.softmax(output, 1)
        delta.scatter_add_(1, labels.unsqueeze(1), delta.new_full((len(x), 1), -1.0))
        share = torch.zeros((), dtype=x.dtype, device=x.device)
        if layer.weight.requires_grad:
            share = torch.linalg.vecdot(x, x) if x_norm2 is None else x_norm2
        if layer.bias is not None and layer.bias.requires_grad:
            share = share + 1
        norms2 = torch.linalg.vecdot(delta, delta) * share
        bad = ~torch.isfinite(norms2)
        if bad.any():
            x, delta = (torch.where(bad[:, None], 0, rows) for rows in (x, delta))
        delta *= clip_factors(norms2, max_grad_norm).unsqueeze(1)
        found = {"weight": lambda: torch.mm(delta.T, x), "bias": lambda: delta.sum(0)}
        start = len(self.prefix)
        gradients = {name: found[name[start:]]() for name in self.order}
        return ClippedSum(gradients, norms2.sqrt(), bad.sum())
