"""Clip factors: min(1, C / ||g_i||), and zero for a gradient that is no number."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

CLIPPINGS = ("flat", "per-layer")


@dataclass
class ClippedSum:
    """sum_i g_i min(1, C / ||g_i||) over the records of a batch.

    `gradients`: one tensor per trainable parameter, by name, in the order of the model's
    parameters. `norms`: ||g_i|| before the clip, (records,). `skipped`: records whose gradient was
    not finite and contributed zero; a GPU keeps the count to itself, as a tensor.
    """

    gradients: dict[str, Tensor]
    norms: Tensor
    skipped: int | Tensor

    def add(self, other: "ClippedSum") -> None:
        """Take in the sum over another chunk of the same batch."""
        for name, gradient in other.gradients.items():
            self.gradients[name] += gradient
        self.norms = torch.cat([self.norms, other.norms])
        self.skipped += other.skipped


def clip_factors(norms2: Tensor, max_grad_norm: float) -> Tensor:
    """min(1, C / ||g_i||) from squared norms (records,); 0 where the norm is not finite."""
    factors = max_grad_norm / norms2.sqrt().clamp_min_(max_grad_norm)
    # C / infinity is 0 by itself.
    return factors.nan_to_num_(nan=0.0)


def bad_records(norms2: Tensor) -> tuple[Tensor | None, int | Tensor]:
    """Mask and number of the squared norms that are not finite; None and 0 where there is none.

    The host looks at a CPU's numbers: their sum, which is finite only if all of them are, answers
    for nearly every batch. A GPU would have to wait for the look and always gets the mask.
    """
    if may_look(norms2):
        if math.isfinite(norms2.sum().item()):
            return None, 0
        bad = ~torch.isfinite(norms2)
        return bad, int(bad.sum())
    bad = ~torch.isfinite(norms2)
    return bad, bad.sum()


def may_look(values: Tensor) -> bool:
    """Whether the host can read `values` without making a device wait."""
    return values.device.type == "cpu"


def per_layer_bound(max_grad_norm: float, layers: int) -> float:
    """C / sqrt(layers) for each layer, so that the whole gradient keeps the norm C."""
    return max_grad_norm / math.sqrt(layers)


def empty_sum(model: nn.Module, names: list[str], prefix: str = "") -> ClippedSum:
    """The clipped sum over no record: zeros for the parameters `names`, given with `prefix`."""
    parameters = dict(model.named_parameters())
    zeros = {name: torch.zeros_like(parameters[name.removeprefix(prefix)]) for name in names}
    zeros = {name: value.detach() for name, value in zeros.items()}
    first = zeros[names[0]]
    return ClippedSum(zeros, first.new_zeros(0), 0)
