"""Clip factors: min(1, C / ||g_i||), and zero for a gradient that is not finite."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from dpatlas.privacy.sums import ClippedSum

CLIPPINGS = ("flat", "per-layer")
# A sum over more terms is split into blocks of this size, which are added up in float64.
SUM_BLOCK = 4096


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
    look = may_look(norms2)
    if look and math.isfinite(norms2.sum().item()):
        return None, 0
    bad = ~torch.isfinite(norms2)
    return bad, int(bad.sum()) if look else bad.sum()


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
    return ClippedSum(zeros, zeros[names[0]].new_zeros(0), 0)
