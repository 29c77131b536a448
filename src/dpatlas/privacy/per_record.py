"""Clipped sums of per-record gradients of a network, from one forward and one backward pass.

    kernel = NetworkGradients(model)
    clipped = kernel.clipped_sum(x, labels, max_grad_norm=1.0)

The first call traces the loss of one record (`dpatlas.privacy.trace`); every call runs what was
traced for all records of its batch (`dpatlas.privacy.batch`), and clips.
"""

import copy
import functools
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from dpatlas.accounting.clip_bounds import LayerBounds
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.models.precision import exact, passes, without_autocast
from dpatlas.privacy.batch import BatchGraph, Gradient
from dpatlas.privacy.clipping import (
    CLIPPINGS,
    bad_records,
    clip_factors,
    empty_sum,
    part_factors,
    per_layer_bound,
)
from dpatlas.privacy.losses import Loss, cross_entropy
from dpatlas.privacy.rule_check import check_rules
from dpatlas.privacy.sums import ClippedSum, added
from dpatlas.privacy.trace import RecordGraph, layer_of, trace_record, tracing

# Number of gradient entries, of all records together, that are held at a time; and the size from
# which copies of a parameter for every record are worth a word.
HELD, LARGE = 2**25, 2**14
# Numbers of the largest block that glibc learns from, a little below 32 MiB.
BLOCK = 31 * 2**18


# Of records' graphs by digest, device, trained parameters and precision: most trainings of a
# process are repetitions of one. A graph holds no values of parameters or records.
_graphs: dict[tuple[Any, ...], BatchGraph] = {}
MOST_GRAPHS = 64
# Parameters and operations of a record's graph that were told of: each phase has a kernel of it.
_told: WeakIdKeyDictionary = WeakIdKeyDictionary()


class PerRecordWarning(UserWarning):
    """Gradients of some parameters are held for every record, which takes time and memory."""


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
        x, labels = pytree.tree_map_only(Tensor, lambda each: each[:1], (x, labels))
        with tracing():
            record = trace_record(self.model, self.loss, x, labels, self.autocast)
            self._take(record)
        return record

    def _take(self, record: RecordGraph) -> None:
        with without_autocast(next(iter(record.parameters.values())).device):
            self.record, self._graph = record, _graph_of(record, tuple(self.order), self.autocast)
        for name in self._graph.unreached():
            found = f"{name} is trainable, but no gradient of the loss reaches it"
            allowed = "parameters that the loss depends on, or that are frozen"
            raise InputError(layer_of(self.model, name), found, allowed)
        sizes = {name: record.parameters[name].numel() for name in self._graph.held}
        # The C library gives memory back above twice the largest block that was freed so far, and
        # each step would fetch it anew: twice the time of a small network's step.
        _ = torch.empty(BLOCK, device="cpu")
        del _
        held = sum(sizes.values())
        self.at_once = max(1, HELD // held) if held else None
        told_of: set[str] = _told.setdefault(record, set())
        large = [name for name, size in sizes.items() if size >= LARGE and name not in told_of]
        slow = [each for each in self._graph.slow if each not in told_of]
        told_of.update(large, slow)
        for each in slow:
            told = f"{each} is computed record by record: torch has no rule for many at once"
            warnings.warn(told, PerRecordWarning, stacklevel=3)
        if large:
            warnings.warn(
                f"every record's gradient of {', '.join(large)} is held, which the loss reads by "
                f"other operations than products, convolutions and look-ups: {held:,} numbers each "
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
        leaves = pytree.tree_leaves((x,) if labels is None else (x, labels))
        rows = len(leaves[0])
        if rows == 0:
            return self.empty()

        def part(start: int) -> ClippedSum:
            assert self.record is not None
            stop, device = min(start + size, rows), leaves[0].device
            data = [each[start:stop].unsqueeze(1) for each in leaves]
            if draws:
                data += draws(start, stop)
            else:
                data += [draw.numbers(device, stop - start) for draw in self.record.draws]
            return self._clipped_part(data, max_grad_norm)

        with without_autocast(leaves[0].device):
            if self._graph is None:
                self.trace(x, labels)
            size = self.views * self.at_once if self.at_once else rows
            return added(map(part, range(0, rows, size)))

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
        kind = torch.promote_types(self.record.parameters[self.order[0]].dtype, torch.float32)
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
            kind_of = torch.promote_types(gradient.like.dtype, torch.float32)
            own_factors = factors[self.layers[name.rpartition(".")[0]]].to(kind_of)
            sums[name] = gradient.weighted(own_factors)
        return ClippedSum(sums, total.sqrt(), skipped)

    def _norms2(self, gradients: dict[str, Gradient], small: float) -> Tensor:
        """Upper bounds on the squared norms of each layer's gradients, (layers, units)."""
        by_layer: list[list[Tensor]] = [[] for _ in self.layers]
        for name, gradient in gradients.items():
            by_layer[self.layers[name.rpartition(".")[0]]].append(gradient.norms2(small))
        return torch.stack([functools.reduce(operator.add, each) for each in by_layer])

    def empty(self) -> ClippedSum:
        """The clipped sum over no records."""
        return empty_sum(self.model, self.order)


def _graph_of(
    record: RecordGraph, trained: tuple[str, ...], autocast: torch.dtype | None
) -> BatchGraph:
    """The checked graph of a batch."""
    device = next(iter(record.parameters.values())).device
    key = record.digest, str(device), tuple(record.parameters), trained, autocast
    if key not in _graphs:
        graph = BatchGraph(record, trained)
        if not graph.unreached():
            check_rules(graph, record, autocast is not None)
        if len(_graphs) >= MOST_GRAPHS:
            del _graphs[next(iter(_graphs))]
        _graphs[key] = graph
    return _graphs[key]
