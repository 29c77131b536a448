"""Clipped sums of per-record gradients of a network, from one forward and one backward pass.

    kernel = NetworkGradients(model)
    clipped = kernel.clipped_sum(x, labels, max_grad_norm=1.0)

The first call traces the loss of one record (`dpatlas.privacy.trace`); every call runs what was
traced for all records of its batch (`dpatlas.privacy.batch`), and clips.
"""

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from dpatlas.core.guard import checked, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.models.precision import exact, passes
from dpatlas.privacy.batch import BatchGraph, Gradient
from dpatlas.privacy.clip_bounds import LayerBounds
from dpatlas.privacy.clipping import (
    CLIPPINGS,
    ClippedSum,
    bad_records,
    clip_factors,
    empty_sum,
    part_factors,
    per_layer_bound,
)
from dpatlas.privacy.losses import Loss, cross_entropy
from dpatlas.privacy.trace import RecordGraph, trace_record

# Number of gradient entries, of all records together, that are held at a time; and the size from
# which copies of a parameter for every record are worth a word.
HELD, LARGE = 2**25, 2**14


class PerRecordWarning(UserWarning):
    """Every record gets a copy of some parameters, which takes more time and memory."""


class NetworkGradients:
    """Per-record gradients of `model` with respect to its trainable parameters.

    `loss(output, labels)` gives one value of a record. With `views` > 1 every record is that many
    consecutive rows of x (augmented views of it) and its gradient is their mean. `clipping`: `flat`
    clips the whole gradient at C = max_grad_norm, `per-layer` each of L layers' at C / sqrt(L), and
    `LayerBounds` the layers under each prefix at a bound of their own. A layer is a module with
    trainable parameters of its own.

    record: the traced loss, where one was made before. trained: names of the parameters; by default
    those that require gradients. autocast: the type of the products of passes; norms, sums and
    noise stay in float32.

    Raises InputError, at the latest at the first sum, for what `trace_record` refuses and for a
    parameter that the loss does not depend on. Copies of large parameters give a PerRecordWarning.
    """

    @checked(views=integer(ge=1))
    def __init__(
        self,
        model: nn.Module,
        loss: Loss = cross_entropy,
        views: int = 1,
        clipping: str | LayerBounds = "flat",
        *,
        record: RecordGraph | None = None,
        trained: Sequence[str] | None = None,
        autocast: torch.dtype | None = None,
    ):
        if not isinstance(clipping, LayerBounds):
            one_of(*CLIPPINGS).check("clipping", clipping)
        self.model, self.loss, self.views, self.clipping = model, loss, views, clipping
        self.autocast, self.record = autocast, record
        if trained is None:
            trained = [name for name, value in model.named_parameters() if value.requires_grad]
        self.order = list(trained)
        if not self.order:
            raise InputError("model", "no trainable parameter", "at least one")
        for name in self.order:
            if (kind := model.get_parameter(name).dtype) not in (torch.float32, torch.float64):
                # Sums are rounded to it before their noise.
                raise InputError(f"parameter {name}", str(kind), "float32 or float64")
        layers = dict.fromkeys(name.rpartition(".")[0] for name in self.order)
        self.layers = {each: at for at, each in enumerate(layers)}
        bounds = self.clipping
        self.parts = bounds.parts(self.layers) if isinstance(bounds, LayerBounds) else []
        self._graph: BatchGraph | None = None
        if record is not None:
            self._take(record)

    def with_rows(self, views: int) -> "NetworkGradients":
        """The same for records of so many rows each."""
        if views == self.views:
            return self
        other = copy.copy(self)
        other.views = views
        return other

    def trace(self, x: Any, labels: Any) -> RecordGraph:
        """Trace the loss of one record of the shape and type of these rows; none is read."""
        one = pytree.tree_map_only(Tensor, lambda each: each[:1], (x, labels))
        self._take(trace_record(self.model, self.loss, *one, self.autocast))
        assert self.record is not None
        return self.record

    def _take(self, record: RecordGraph) -> None:
        self.record, self._graph = record, BatchGraph(record, self.order)
        for name in self._graph.unreached():
            place = name.rpartition(".")[0]
            kind = type(self.model.get_submodule(place)).__name__
            raise InputError(
                f"layer {place or 'model'} ({kind})",
                f"{name} is trainable, but no gradient of the loss reaches it",
                "parameters that the loss depends on, or that are frozen",
            )
        sizes = {name: record.parameters[name].numel() for name in self._graph.copied}
        held = sum(sizes.values())
        self.at_once = max(1, HELD // held) if held else None
        large = [name for name, size in sizes.items() if size >= LARGE]
        if large:
            warnings.warn(
                f"every record gets a copy of {', '.join(large)}, which the loss reads by other "
                f"operations than products, convolutions and look-ups: {held:,} numbers a record "
                f"({4e-6 * held:,.2g} MB; at most {self.at_once:,} records at a time)",
                PerRecordWarning,
                stacklevel=3,
            )

    def constants(self, x: Tensor) -> None:
        """None: unlike in `SoftmaxGradients`, no part of a record's norm is constant."""

    @checked(max_grad_norm=real(gt=0))
    @torch.no_grad()
    @exact()
    def clipped_sum(
        self,
        x: Any,
        labels: Any,
        max_grad_norm: float,
        constants: Tensor | None = None,
        draws: Callable[[int, int], list[Tensor]] | None = None,
    ) -> ClippedSum:
        """Sum over records of clipped gradients.

        x: (records * views, ...), in tuples or dicts as the model takes them; labels alike. A
        gradient that is not finite, or whose squared norm overflows, counts as zero, as does one of
        a linear layer's inputs beyond 8e29. draws(start, stop): random numbers of these rows as the
        network needs them; without it they are torch's.
        """
        leaves = pytree.tree_leaves(x if labels is None else (x, labels))
        rows = len(leaves[0])
        if rows == 0:
            return self.empty()
        if self._graph is None:
            self.trace(x, labels)
        assert self.record is not None
        size = self.views * self.at_once if self.at_once else rows
        total: ClippedSum | None = None
        for start in range(0, rows, size):
            stop = min(start + size, rows)
            own = draws(start, stop) if draws else self._unkeyed(stop - start)
            data = [each[start:stop].unsqueeze(1) for each in leaves] + own
            part = self._clipped_part(data, max_grad_norm)
            if total is None:
                total = part
            else:
                total.add(part)
        assert total is not None
        return total

    def _unkeyed(self, rows: int) -> list[Tensor]:
        assert self.record is not None
        if not self.record.draws:
            return []
        device = self.model.get_parameter(self.order[0]).device
        make = {"uniform": torch.rand, "normal": torch.randn}
        return [make[draw.kind](rows, *draw.shape, device=device) for draw in self.record.draws]

    def _clipped_part(self, data: Sequence[Tensor], max_grad_norm: float) -> ClippedSum:
        """`clipped_sum` of rows that are passed through together."""
        assert self.record is not None and self._graph is not None
        with passes():
            units = len(data[0]) // self.views
            gradients = self._graph.gradients(self.record.state(), data, units)
        count = len(self.layers)
        layer_bound = per_layer_bound(max_grad_norm, count)
        bounds: dict[str, float] = {}
        if isinstance(self.clipping, LayerBounds):
            bounds = self.clipping.scaled(max_grad_norm)
            layer_bound = per_layer_bound(min(bounds.values()), count)
        norms2 = self._norms2(gradients, layer_bound**2)
        kind = self.record.parameters[self.order[0]].dtype
        total = norms2.sum(0).to(kind)
        bad, skipped = bad_records(total)
        if self.clipping == "flat":
            factors = clip_factors(norms2.sum(0), max_grad_norm).expand(count, -1)
        else:
            parts = part_factors(norms2, self.parts, bounds) if bounds else None
            factors = clip_factors(norms2, layer_bound) if parts is None else parts
            factors = torch.where(torch.isfinite(total), factors, 0)
        sums = {}
        for name, gradient in gradients.items():
            if bad is not None:
                gradient.discard(bad)
            sums[name] = gradient.weighted(factors[self.layers[name.rpartition(".")[0]]])
        return ClippedSum(sums, total.sqrt(), skipped)

    def _norms2(self, gradients: dict[str, Gradient], small: float) -> Tensor:
        """Upper bounds on the squared norms of each layer's gradients, (layers, units)."""
        by_layer: list[Tensor | None] = [None] * len(self.layers)
        for name, gradient in gradients.items():
            at, each = self.layers[name.rpartition(".")[0]], gradient.norms2(small)
            before = by_layer[at]
            by_layer[at] = each if before is None else before + each
        return torch.stack([each for each in by_layer if each is not None])

    def empty(self) -> ClippedSum:
        """The clipped sum over no records."""
        return empty_sum(self.model, self.order)
