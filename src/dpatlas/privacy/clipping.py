"""Clip factors: min(1, C / ||g_i||), and zero for a gradient that is not finite."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

CLIPPINGS = ("flat", "per-layer")
# A sum over more terms is split into blocks of this size, which are added up in float64.
SUM_BLOCK = 4096


@dataclass
class ClippedSum:
    """sum_i g_i min(1, C / ||g_i||) over the records of a batch.

    `gradients`: one tensor per trainable parameter, by name, in the order of the model's
    parameters. `norms`: the upper bounds on ||g_i|| before the clip that records are clipped by,
    (records,). `skipped`: number of records whose gradient was not finite and contributed zero; on
    a GPU a tensor, so that the host need not wait for it.

    A record alone adds at most C (1 + 1e-6), including all rounding. Among n records, adding or
    removing one moves the computed sum by at most C (1 + `company_rounding(n)`), as long as the
    passes through the network round the activations of the others in the same way.
    """

    gradients: dict[str, Tensor]
    norms: Tensor
    skipped: int | Tensor

    def add(self, other: "ClippedSum") -> None:
        """Add the sum over another chunk of the same batch."""
        for name, gradient in other.gradients.items():
            self.gradients[name] += gradient
        self.norms = torch.cat([self.norms, other.norms])
        self.skipped += other.skipped


@dataclass
class NoisySum:
    """A clipped sum with its noise, which alone an update takes: nothing of a record is in it bare.

    `scale`: standard deviation of the noise; 0 where a training asked for none.
    """

    gradients: dict[str, Tensor]
    scale: float

    def divided(self, expected_batch: float) -> "NoisySum":
        """The noisy mean, in place."""
        for gradient in self.gradients.values():
            gradient.div_(expected_batch)
        return NoisySum(self.gradients, self.scale / expected_batch)


def company_rounding(records: int, dtype: torch.dtype = torch.float32) -> float:
    """2 sqrt(SUM_BLOCK) n u: what rounding adds to a record's contribution to a sum over n records.

    u is the unit roundoff. The partial sums of a block of at most SUM_BLOCK terms and b records
    have norm b C at most, and each of its additions errs by u of one of them; errors that are
    independent with mean zero then add up to sqrt(SUM_BLOCK) b u C (the model of Higham and Mary
    2019; the worst case is SUM_BLOCK b u C). Blocks are added in float64. The sums with and without
    the record both err.
    """
    return 2 * math.sqrt(SUM_BLOCK) * records * torch.finfo(dtype).eps / 2


def clip_factors(norms2: Tensor, max_grad_norm: float) -> Tensor:
    """min(1, C / ||g_i||) from squared norms (records,); 0 where the norm is not finite.

    A factor that float32 could only hold with fewer digits, below its least normal number, is 0.
    """
    factors = max_grad_norm / norms2.sqrt().clamp_min_(max_grad_norm)
    factors.masked_fill_(factors < torch.finfo(torch.float32).tiny, 0)
    # C / infinity is 0 by itself.
    return factors.nan_to_num_(nan=0.0)


def part_factors(
    norms2: Tensor, parts: Sequence[tuple[str, list[int]]], bounds: Mapping[str, float]
) -> Tensor:
    """Factors (layers, records) by which each part of a gradient is clipped at its own bound.

    norms2: (layers, records). parts: names, each with the indices of its layers.
    """
    factors = torch.empty_like(norms2)
    for name, layers in parts:
        factors[layers] = clip_factors(norms2[layers].sum(0), bounds[name])
    return factors


def bad_records(norms2: Tensor) -> tuple[Tensor | None, int | Tensor]:
    """Mask and number of the squared norms that are not finite; None and 0 if all are finite.

    On a CPU their sum, which is finite only if all of them are, decides for nearly every batch. On
    a GPU the host would have to wait for that sum, so the mask is always returned.
    """
    if may_look(norms2):
        if math.isfinite(norms2.sum().item()):
            return None, 0
        bad = ~torch.isfinite(norms2)
        return bad, int(bad.sum())
    bad = ~torch.isfinite(norms2)
    return bad, bad.sum()


def may_look(values: Tensor) -> bool:
    """Whether the host can read `values` without waiting for a device."""
    return values.device.type == "cpu"


def per_layer_bound(max_grad_norm: float, layers: int) -> float:
    """C / sqrt(layers) for each layer, so that the whole gradient has at most norm C."""
    return max_grad_norm / math.sqrt(layers)


def empty_sum(model: nn.Module, names: list[str], prefix: str = "") -> ClippedSum:
    """The clipped sum over no records: zeros by parameter; `names` start with `prefix`."""
    parameters = dict(model.named_parameters())
    zeros = {name: torch.zeros_like(parameters[name.removeprefix(prefix)]) for name in names}
    zeros = {name: value.detach() for name, value in zeros.items()}
    first = zeros[names[0]]
    return ClippedSum(zeros, first.new_zeros(0), 0)
