"""Per-record gradients of any module by `torch.func`, a record at a time.

The module's forward pass is that of the batch; in the backward pass every record goes through it
once more by itself, under `vmap(vjp)`. That takes several times as long as a rule and fills memory
with every record's gradient, but asks of the module only that records do not meet in it.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from dpatlas.privacy.rules import ANCHOR, Rule
from dpatlas.privacy.stand_in import records_first

# Number of gradient entries, of all records together, that are held at a time.
HELD = 2**25

_NOTHING: tuple[list[Any], Any] = ([], None)
# Gradients with respect to the parameters and inputs, from the inputs and output gradients.
Pull = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, ...]]


class Recomputed(Rule):
    """A module with all its layers, called with tensors whose first dimension is the records."""

    whole = True

    def __init__(self, name: str, layer: nn.Module, views: int = 1):
        super().__init__(name, layer, views)
        self.trainable = {
            key: value for key, value in layer.named_parameters() if value.requires_grad
        }
        # By the name that functional_call knows: a layer may stand under several names, and several
        # layers may share a parameter.
        self.places = {
            f"layer.{place}.{own}" if place else f"layer.{own}": key
            for place, module in layer.named_modules()
            for own, value in module.named_parameters(recurse=False, remove_duplicate=False)
            for key, trainable in self.trainable.items()
            if trainable is value
        }
        self.alone = _Alone(layer)
        # Flattened arguments and result of the last call.
        self.arguments, self.result = _NOTHING, _NOTHING
        # Whether the module works under vmap, as far as is known.
        self.vectorised = True
        # The dimension of the records in every output, once it is known.
        self.dims: list[int] | None = None

    def records_at_once(self) -> int:
        """Number of records whose gradients are held at a time."""
        return max(1, HELD // sum(value.numel() for value in self.trainable.values()))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output for the batch."""
        self.called()
        self.arguments = tree_flatten((args, kwargs))
        given = [records_first(leaf) for leaf in self.arguments[0] if isinstance(leaf, Tensor)]
        for tensor in given:
            self.check_rows(tensor)
        outputs = _Recompute.apply(self, ANCHOR, *given)
        leaves, form = self.result
        return tree_unflatten(_filled(leaves, outputs), form)

    def outputs(self, given: Iterable[Tensor], values: Sequence[Tensor]) -> tuple[list[Any], Any]:
        """The module's output, flattened, for these inputs and values of the parameters."""
        leaves, form = self.arguments
        args, kwargs = tree_unflatten(_filled(leaves, given), form)
        by_key = dict(zip(self.trainable, values, strict=True))
        parameters = {place: by_key[key] for place, key in self.places.items()}
        result = functional_call(self.alone, parameters, args, kwargs, tie_weights=False)
        return tree_flatten(result)

    def gradients(
        self, deltas: Sequence[Tensor | None], given: Sequence[Tensor], needed: Sequence[bool]
    ) -> list[Tensor | None]:
        """Stores per-record gradients; returns those with respect to the inputs `needed`."""
        records = len(given[0]) // self.views
        values = [self.layer.get_parameter(key).detach() for key in self.trainable]
        inputs = [each.detach().unflatten(0, (records, self.views)) for each in given]
        dims = self._dims(inputs, values)
        arriving = [
            _by_record(delta, dim, records)
            for delta, dim in zip(deltas, dims, strict=True)
            if delta is not None
        ]

        def chosen(rows: Sequence[Tensor], variables: Sequence[Tensor]) -> tuple[Tensor, ...]:
            """The outputs that have a gradient, as a function of parameters and needed inputs."""
            moved = iter(variables[len(values) :])
            mixed = [next(moved) if need else row for row, need in zip(rows, needed, strict=True)]
            leaves, _ = self.outputs(mixed, variables[: len(values)])
            tensors = (leaf for leaf in leaves if isinstance(leaf, Tensor))
            return tuple(
                each for each, delta in zip(tensors, deltas, strict=True) if delta is not None
            )

        def variables(rows: Sequence[Tensor]) -> list[Tensor]:
            return [*values, *(row for row, need in zip(rows, needed, strict=True) if need)]

        def vectorised(rows: Sequence[Tensor], arriving: Sequence[Tensor]) -> tuple[Tensor, ...]:
            pull = vjp(lambda *given: chosen(rows, given), *variables(rows))[1]
            return pull(tuple(arriving))

        def by_autograd(rows: Sequence[Tensor], arriving: Sequence[Tensor]) -> tuple[Tensor, ...]:
            with torch.enable_grad():
                leaves = [each.detach().requires_grad_() for each in variables(rows)]
                found = [
                    (output, delta)
                    for output, delta in zip(chosen(rows, leaves), arriving, strict=True)
                    if output.requires_grad
                ]
                return torch.autograd.grad(
                    [output for output, _ in found],
                    leaves,
                    [delta for _, delta in found],
                    allow_unused=True,
                    materialize_grads=True,
                )

        found = self._of_each(vectorised, by_autograd, inputs, arriving)
        self.record_gradients = dict(zip(self.trainable, found[: len(values)], strict=True))
        self.reached = True
        below = iter(found[len(values) :])
        return [next(below).flatten(0, 1) if need else None for need in needed]

    def _of_each(
        self, vectorised: Pull, by_autograd: Pull, inputs: list[Tensor], arriving: list[Tensor]
    ) -> Sequence[Tensor]:
        """Gradients of every record, (records, ...), under vmap if that is possible."""
        if self.vectorised:
            try:
                with warnings.catch_warnings():
                    # Operations that vmap knows nothing of are called record by record.
                    warnings.filterwarnings("ignore", "There is a performance drop")
                    return [each.contiguous() for each in vmap(vectorised)(inputs, arriving)]
            except (RuntimeError, NotImplementedError):
                self.vectorised = False
        each = zip(zip(*inputs, strict=True), zip(*arriving, strict=True), strict=True)
        rows = [by_autograd(*one) for one in each]
        return [torch.stack(parts) for parts in zip(*rows, strict=True)]

    def _dims(self, inputs: Sequence[Tensor], values: Sequence[Tensor]) -> list[int]:
        """The dimension of the records in every output: it alone differs from a record alone."""
        shapes = [leaf.shape for leaf in self.result[0] if isinstance(leaf, Tensor)]
        if self.dims is None and len(inputs[0]) > 1:
            leaves, _ = self.outputs([each[0].clone() for each in inputs], values)
            alone = [leaf.shape for leaf in leaves if isinstance(leaf, Tensor)]
            self.dims = [
                next((dim for dim, (one, other) in enumerate(pairs) if one != other), 0)
                for pairs in (zip(*both, strict=False) for both in zip(shapes, alone, strict=True))
            ]
        return self.dims or [0] * len(shapes)

    def reset(self) -> None:
        """Forget the last pass."""
        super().reset()
        self.arguments = self.result = _NOTHING


class _Recompute(torch.autograd.Function):
    """A module whose backward pass goes through it again, record by record."""

    @staticmethod
    def forward(ctx: Any, rule: Recomputed, anchor: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        """The tensors among the module's outputs."""
        ctx.rule = rule
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*given)
        values = [rule.layer.get_parameter(key).detach() for key in rule.trainable]
        # Copies, because the module may change its inputs in place.
        rule.result = rule.outputs([each.clone() for each in given], values)
        return tuple(leaf for leaf in rule.result[0] if isinstance(leaf, Tensor))

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients with respect to the inputs, where they are needed."""
        needed = ctx.needs_input_grad[2:]
        return None, None, *ctx.rule.gradients(deltas, ctx.saved_tensors, needed)


class _Alone(nn.Module):
    """A module's forward without the rule in its place and without hooks, which run outside."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer, self.own = layer, layer.forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        return self.own(*args, **kwargs)


def _filled(leaves: Iterable[Any], tensors: Iterable[Tensor]) -> list[Any]:
    """The leaves with `tensors`, in this order, in the place of the tensors among them."""
    others = iter(tensors)
    return [next(others) if isinstance(leaf, Tensor) else leaf for leaf in leaves]


def _by_record(delta: Tensor, dim: int, records: int) -> Tensor:
    """(records, ...) parts of an output gradient along the records' dimension."""
    if records == 1:
        return delta.unsqueeze(0)
    return delta.unflatten(dim, (records, -1)).movedim(dim, 0)
