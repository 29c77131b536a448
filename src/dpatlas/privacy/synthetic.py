"""Made-up records and labels for the probe: of many sizes, and with what is unusual in them.

Only the shape and type of real records are used. `draws` is the probe's generator, `precision` the
type of the real numbers.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.privacy.structured import Structured

# (scale, offset) of synthetic records. For large records or networks only the first few are made:
# all of them would take a minute instead of ten seconds. One is small: code may scale a whole batch
# where any number is above 1.
RECORDS = ((1, 0), (1e-2, 0), (1, 1e6), (1, 0), (10, 0), (1, 1e3), (1, 0))
FEW, LARGE_RECORD, LARGE_NETWORK = 3, 20_000, 1_000_000
# Numbers in a network's code that are tried as gaps: how many, and up to which rounding allows it.
MOST_GAPS, LARGEST_GAP = 6, {torch.float64: 1e6, torch.float32: 1e4}
# Real-valued targets, of which the first that the loss takes are used: logarithms need positive
# ones, and some losses only know 0 and 1.
TARGETS = ((0.0, 1.0, 0.5, 1.0), (0.0, 1.0), (0.5, 1.0))


def synthetic_records(
    x: Any, views: int, weights: int, draws: np.random.Generator, precision: torch.dtype
) -> list[Any]:
    """Records like those of x, each (views, ...); the second to last repeats the first.

    The last one is to replace another. weights: numbers in the network, which determine how many
    records are made.
    """
    if isinstance(x, Structured):
        parts = [synthetic_records(leaf, views, weights, draws, precision) for leaf in x.leaves]
        return [x.of(leaves) for leaves in zip(*parts, strict=True)]
    shape = (views, *x.shape[1:])
    large = x[0].numel() > LARGE_RECORD or weights > LARGE_NETWORK
    scales = RECORDS[:FEW] if large else RECORDS
    if not x.is_floating_point():
        high = 256 if x.dtype == torch.uint8 else 2
        records = [torch.from_numpy(draws.integers(0, high, shape)).to(x) for _ in scales]
    else:
        limit = 1e6 if precision == torch.float64 else 1
        normals = (torch.from_numpy(draws.standard_normal(shape)) for _ in scales)
        records = [
            (scale * values + min(offset, limit)).to(x.device, precision)
            for (scale, offset), values in zip(scales, normals, strict=True)
        ]
    return [*records[:-1], records[0].clone(), records[-1]]


def calm_records(records: int) -> list[int]:
    """Indices, of so many `synthetic_records`, beside which the gradients of others show."""
    return [number for number, (_, offset) in enumerate(RECORDS[: records - 2]) if not offset]


def synthetic_labels(
    like: Tensor,
    output: Tensor,
    records: int,
    views: int,
    targets: Sequence[float],
    precision: torch.dtype,
) -> list[Tensor]:
    """Labels of records, each (views, ...): classes that `output` has, or the real `targets`."""
    shape = like.shape[1:]
    # Classes are the last dimension, or the second one of maps (records, classes, ...).
    sizes = [output.shape[-1] if output.dim() > 1 else 2]
    if output.dim() > 2 and output.shape[2:] == shape:
        sizes.append(output.shape[1])
    classes = max(2, min(sizes))
    labels = []
    for number in range(records):
        if like.is_floating_point():
            target = targets[number % len(targets)]
            label = torch.full((1, *shape), target, dtype=precision, device=like.device)
        else:
            label = torch.full((1, *shape), number % classes, dtype=like.dtype, device=like.device)
        labels.append(label.repeat_interleave(views, 0))
    return labels


def with_gaps(values: Tensor, draws: np.random.Generator) -> Iterator[Tensor]:
    """Values of which some are NaN; of which some are -1, some 0, and the last ones too."""
    kinds = torch.from_numpy(draws.integers(0, 3, values.shape)).to(values.device)
    kinds.view(-1)[:1] = 0
    yield values.masked_fill(kinds == 0, math.nan)
    yield _ending_in(values.masked_fill(kinds == 0, -1).masked_fill(kinds == 1, 0), 0)


def with_gap(values: Tensor, gap: float, draws: np.random.Generator) -> Tensor | None:
    """Values of which some are `gap`; None for whole numbers that cannot be."""
    if not values.is_floating_point():
        limits = torch.iinfo(values.dtype) if values.dtype != torch.bool else None
        if limits is None or gap % 1 or not limits.min <= gap <= limits.max:
            return None
    kinds = torch.from_numpy(draws.integers(0, 2, values.shape)).to(values.device)
    kinds.view(-1)[:1] = 0
    return values.masked_fill(kinds == 0, gap if values.is_floating_point() else int(gap))


def gap_values(numbers: Iterable[float], precision: torch.dtype) -> list[float]:
    """The numbers that most look like those that stand for a missing value; at most `MOST_GAPS`.

    Negative ones first, then large ones; not those that `with_gaps` has.
    """
    limit = LARGEST_GAP[precision]
    fitting = [each for each in numbers if abs(each) <= limit and each not in (0, -1)]
    return sorted(fitting, key=lambda each: (each > 0, -abs(each)))[:MOST_GAPS]


def padded(
    values: Tensor, embeddings: Sequence[nn.Embedding | nn.EmbeddingBag], draws: np.random.Generator
) -> Iterator[Tensor]:
    """Whole numbers over the range that `embeddings`, which look them up, have; with padding."""
    count, paddings = 256 if values.dtype == torch.uint8 else 2, [0, 1, -1]
    for layer in embeddings:
        count = layer.num_embeddings
        paddings += [] if layer.padding_idx is None else [layer.padding_idx]
    numbers = torch.from_numpy(draws.integers(0, count, values.shape)).to(values)
    for padding in dict.fromkeys([*paddings, count - 1]):
        if padding >= 0 or values.dtype.is_signed:
            yield _ending_in(numbers, padding)


def unusual_labels(labels: Tensor, draws: np.random.Generator) -> Iterator[Tensor]:
    """Missing targets; classes to be ignored."""
    if labels.is_floating_point() and labels.numel():
        yield next(with_gaps(labels, draws))
    elif labels.dtype.is_signed:
        for ignored in (-100, -1):
            yield _ending_in(labels, ignored)


def _ending_in(values: Tensor, padding: float) -> Tensor:
    """A copy whose last half, along the first dimension of what belongs to a row, is `padding`."""
    values = values.clone()
    if values.dim() > 1:
        values[:, (values.shape[1] + 1) // 2 :] = padding
    else:
        values[:] = padding
    return values
