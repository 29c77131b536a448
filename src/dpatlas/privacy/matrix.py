"""Per-record gradients of matrices and of tables: of products, and of looked-up rows."""

import torch
from torch import Tensor

from dpatlas.privacy.factors import Factored, gram, gram_roundings, multiplied
from dpatlas.privacy.norms import in_blocks, inputs_norms2, rows_norm2

# The Gram form of a matrix over positions is used where it needs less than this share of the
# multiplications of the gradient: the alternative is a batched product whose results fill the
# memory.
GRAM_SHARE = 0.7


class Matrix(Factored):
    """y = a W^T with a (records, positions, in) and delta (records, positions, out) of y.

    dL_i/dW = sum_t delta_it a_it^T, (out, in).
    """

    def __init__(self, weight: Tensor, a: Tensor, delta: Tensor):
        self.weight = weight
        positions, into, out = *a.shape[1:], delta.shape[2]
        small = positions == 1 or positions * (into + out) < GRAM_SHARE * into * out
        self.hold(small, a, delta)

    def multiplied_out(self, inputs: Tensor, delta: Tensor) -> Tensor:
        """Sums over positions."""
        return multiplied(delta, inputs)

    def norms2(self, small: float) -> Tensor:
        """||delta||^2 ||a||^2 for one position; <delta delta^T, a a^T>, or of gradients."""
        if self.stored is None and self.positions() == 1:
            inputs, delta = self.gradient_factors()
            return rows_norm2(delta) * inputs_norms2(inputs)
        return super().norms2(small)

    def grams(self) -> tuple[Tensor, Tensor, int]:
        """Of the factors as they are."""
        factors = inputs, delta = self.gradient_factors()
        return gram(inputs), gram(delta), sum(gram_roundings(rows.shape[2]) for rows in factors)

    def product(self, delta: Tensor, inputs: Tensor) -> Tensor:
        """One product over records and positions."""
        return delta.flatten(0, 1).T @ inputs.flatten(0, 1)

    def positions(self) -> int:
        """Number of positions of a record."""
        return self.gradient_factors()[0].shape[1]

    def pairs(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """The factors of these records."""
        inputs, delta = self.gradient_factors()
        return inputs[rows], delta[rows]


class Table(Factored):
    """Rows of a table (rows, width) at indices (records, positions); delta as the rows, by index.

    A record's gradient is the sum of its delta over each of its indices. The sums are stored for
    the rows that a record reads: (records, read, width) with read = min(positions, rows).
    """

    read: Tensor | None = None

    def __init__(self, weight: Tensor, indices: Tensor, delta: Tensor, padding: int):
        self.weight = weight
        count, width = weight.shape
        records, positions = indices.shape
        kept, slots = count, indices
        if positions < count:
            kept = positions
            order = indices.argsort(1)
            ordered = indices.gather(1, order)
            starts = torch.zeros_like(ordered)
            starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
            numbers = starts.cumsum(1)
            slots = torch.empty_like(indices).scatter_(1, order, numbers)
            self.read = torch.zeros_like(indices).scatter_(1, numbers, ordered)
        rows = delta.reshape(-1, width)
        if padding >= 0:
            rows = rows.masked_fill((indices == padding).reshape(-1, 1), 0)
        slots = slots + kept * torch.arange(records, device=indices.device)[:, None]
        sums = _summed_by(slots.reshape(-1), rows, records * kept)
        self.stored = sums.view(records, kept, width)

    def each(self) -> Tensor:
        """As `Factored.each`."""
        assert self.stored is not None
        if self.read is None:
            return self.stored
        records, (count, width) = len(self.stored), self.weight.shape
        where = self.read + count * torch.arange(records, device=self.read.device)[:, None]
        rows = _summed_by(where.reshape(-1), self.stored.flatten(0, 1), records * count)
        return rows.view(records, count, width)

    def weighted(self, factors: Tensor) -> Tensor:
        """The scaled sums, added up by row."""
        if self.read is None or self.stored is None:
            return super().weighted(factors)
        return in_blocks(self._by_row, 1, factors.to(self.stored.dtype), self.stored, self.read)

    def _by_row(self, factors: Tensor, sums: Tensor, read: Tensor) -> Tensor:
        rows = (sums * factors[:, None, None]).flatten(0, 1)
        return _summed_by(read.reshape(-1), rows, len(self.weight))


class Stored(Factored):
    """Gradients (records, *shape) that autograd gave, of a small parameter or of its copies."""

    def __init__(self, gradients: Tensor):
        self.stored, self.weight = gradients, gradients[0] if len(gradients) else gradients


def _summed_by(indices: Tensor, rows: Tensor, count: int) -> Tensor:
    """(count, width) sums of the rows (n, width) with each index, in the order of the rows."""
    return torch.ops.aten.embedding_dense_backward(rows, indices, count, -1, False)
