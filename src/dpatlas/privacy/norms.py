"""Upper bounds on squared norms, rounding included, and sums over many records in blocks."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from dpatlas.privacy.clipping import SUM_BLOCK

# Rows longer than SHORT_ROW are squared and added up in blocks of NORM_BLOCK numbers.
NORM_BLOCK, SHORT_ROW = 256, 1024
# The longest input, as a share of the inverse of the least normal number: 8.5e29 in float32.
LONGEST = 1e-8


def rounding(terms: int, dtype: torch.dtype) -> float:
    """n u / (1 - 2 n u), the error of n = `terms` roundings relative to computed magnitudes.

    gamma_n = n u / (1 - n u) bounds the error relative to the exact sum of magnitudes, which is at
    most the computed one over 1 - gamma_n (Higham 2002, Lemma 3.1).
    """
    error = terms * torch.finfo(dtype).eps / 2
    return error / (1 - 2 * error)


def rows_norm2(gradients: Tensor) -> Tensor:
    """Upper bounds on ||row||^2 of a (records, ...) tensor, float64, without a squared copy of it.

    Short rows are summed in float64. Long rows are sums of the squared norms of blocks, each of
    which has a rounding error of at most gamma_(NORM_BLOCK + 4) for any order of summation, and
    loses at most NORM_BLOCK times the least normal number where squares underflow.
    """
    rows = gradients.reshape(len(gradients), -1)
    if rows.shape[1] <= SHORT_ROW:
        return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square_()
    whole = rows.shape[1] // NORM_BLOCK * NORM_BLOCK
    blocks = torch.linalg.vector_norm(rows[:, :whole].unflatten(1, (-1, NORM_BLOCK)), dim=2)
    rest = torch.linalg.vector_norm(rows[:, whole:], dim=1, dtype=torch.float64)
    underflow = NORM_BLOCK * torch.finfo(rows.dtype).tiny
    total = blocks.double().square_().add_(underflow).sum(1).add_(rest.square_())
    return total.mul_(1 + rounding(NORM_BLOCK + 4, rows.dtype))


def inputs_norms2(inputs: Tensor) -> Tensor:
    """`rows_norm2` of a linear layer's inputs a; infinite where they are beyond `LONGEST`.

    A clipped gradient c delta a^T has norm C, so that c delta is about C / |a|. Below the least
    normal number each of its entries is rounded by up to 2^-150, which the product multiplies by
    |a|: by C itself for the longest inputs and C = 1e-7.
    """
    norms2 = rows_norm2(inputs)
    longest = LONGEST / torch.finfo(inputs.dtype).tiny
    return norms2.masked_fill_(norms2.sqrt() > longest, math.inf)


def in_blocks(product: Callable[..., Tensor], positions: int, *factors: Tensor) -> Tensor:
    """`product(*factors)`, a sum over records (the first dimension) and their positions.

    A sum of more than SUM_BLOCK terms is split into blocks of records, added up in float64.
    """
    size = max(1, SUM_BLOCK // positions)
    if len(factors[0]) <= size:
        return product(*factors)
    blocks = zip(*(factor.split(size) for factor in factors), strict=True)
    parts = (product(*block) for block in blocks)
    first = next(parts)
    total = first.double()
    for part in parts:
        total += part
    return total.to(first.dtype)


def stored_sum(factors: Tensor, gradients: Tensor) -> Tensor:
    """sum_i c_i g_i of gradients (records, *shape), with factors c (records,)."""
    rows = gradients.reshape(len(gradients), -1)
    return in_blocks(torch.matmul, 1, factors, rows).view(gradients.shape[1:])
