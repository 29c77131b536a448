"""Per-record gradients of embeddings, without a row for every word of the vocabulary."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.privacy.rules import Ambiguous, Rule, in_blocks, rows_norm2
from dpatlas.privacy.stand_in import stand_in


class Embedding(Rule):
    """nn.Embedding: a record's gradient is the sum of its output gradients over each of its words.

    The sums are stored for the words that a record has: (records, words, dim) with
    words = min(positions, vocabulary). Indices that all records share, such as positions
    (positions,) or (1, positions), give every record a copy of its own of the output.
    """

    layer: nn.Embedding
    parameters = ("weight",)

    def __init__(self, name: str, layer: nn.Module, views: int = 1):
        super().__init__(name, layer, views)
        for option in ("max_norm", "scale_grad_by_freq"):
            value = getattr(self.layer, option)
            if value:
                # The first changes weights without noise; the second counts words in the batch.
                raise InputError(f"layer {name} (Embedding)", f"{option}={value}", "none")
        # Whether an index of one dimension is the same for all records, once it is known, and the
        # length of the first one.
        self.shared: bool | None = None
        self.length: int | None = None
        self.words: Tensor | None = None
        self.sums: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The output, in place of the layer's `forward`."""
        if self.rows is None or not self._is_shared(x):
            return super().__call__(x)
        shape = x.shape if x.dim() < 2 else x.shape[1:]
        output = super().__call__(x.expand(self.rows, *shape))
        return stand_in(output if x.dim() < 2 else output.unsqueeze(1))

    def _is_shared(self, x: Tensor) -> bool:
        if x.dim() != 1:
            return x.dim() == 0 or len(x) == 1 != self.rows
        if len(x) != self.rows:
            self.shared = True
        elif self.shared is None and len(x) > 1:
            if self.length in (None, len(x)):
                self.length = len(x)
                raise Ambiguous
            # It changes with the number of records.
            self.shared = False
        return bool(self.shared)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """A row of the weight for each index."""
        return (F.embedding(x, self.value("weight")),)

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Stores the sums of delta over equal indices of a record."""
        vocabulary, dim = self.value("weight").shape
        indices = x.reshape(len(x) // self.views, -1)
        records, positions = indices.shape
        width, self.words = vocabulary, None
        slots = indices
        if positions < vocabulary:
            width = positions
            order = indices.argsort(1)
            ordered = indices.gather(1, order)
            starts = torch.zeros_like(ordered)
            starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
            numbers = starts.cumsum(1)
            slots = torch.empty_like(indices).scatter_(1, order, numbers)
            self.words = torch.zeros_like(indices).scatter_(1, numbers, ordered)
        rows = delta.reshape(-1, dim)
        if self.layer.padding_idx is not None:
            rows = rows.masked_fill((indices == self.layer.padding_idx).view(-1, 1), 0)
        slots = slots + width * torch.arange(records, device=x.device)[:, None]
        sums = _summed_by(slots.view(-1), rows, records * width).view(records, width, dim)
        if self.words is None:
            self.record_gradients["weight"] = sums
        else:
            self.sums = sums
        return None

    def norms2(self, small: float = 0.0) -> Tensor:
        """Of the stored sums, which are the rows of the gradient that are not zero."""
        return super().norms2(small) if self.sums is None else rows_norm2(self.sums)

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """The scaled sums, added up by word."""
        if self.sums is None or self.words is None:
            return super().weighted(factors)
        total = in_blocks(self._by_word, 1, factors, self.sums, self.words)
        return {"weight": total}

    def _by_word(self, factors: Tensor, sums: Tensor, words: Tensor) -> Tensor:
        rows = (sums * factors[:, None, None]).flatten(0, 1)
        return _summed_by(words.reshape(-1), rows, len(self.value("weight")))

    def discard(self, bad: Tensor) -> None:
        """As `Rule.discard`."""
        super().discard(bad)
        if self.sums is not None:
            self.sums.masked_fill_(bad[:, None, None], 0)

    def reset(self) -> None:
        """Forget the last pass."""
        super().reset()
        self.words = self.sums = None


def _summed_by(indices: Tensor, rows: Tensor, count: int) -> Tensor:
    """(count, dim) sums of the rows (n, dim) with each index, in the order of the rows."""
    return torch.ops.aten.embedding_dense_backward(rows, indices, count, -1, False)
