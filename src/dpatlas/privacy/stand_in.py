"""Stand-ins for a value that all records share, of which each record gets a copy of its own.

A network adds a position embedding of shape (1, tokens, dim) to tokens of shape (records, tokens,
dim), or multiplies them with a factor of shape (dim,). During a pass such a parameter is replaced
by a `StandIn`, whose gradient is then that of each record. The network sees the parameter's shape;
behind it stands a tensor (records, *shape).

Which dimension is that of the records follows from the number of dimensions, never from sizes,
which may coincide: beside a tensor with more dimensions a stand-in has none of its own; beside one
with as many, its first dimension, which is 1, is that of the records.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

_ARITHMETIC = ("add", "sub", "mul", "div", "truediv")
# Names under which torch calls functions that act on each number by itself.
ELEMENTWISE = {
    form.format(name)
    for name in _ARITHMETIC
    for form in ("{}", "{}_", "__{}__", "__r{}__", "__i{}__")
}
JOINING = {"cat", "concat", "concatenate"}


class NotBroadcast(Exception):
    """A use of a stand-in that is not among those that keep records apart."""


class StandIn(Tensor):
    """A tensor (records, *shape) that shows itself as one of `shape`."""

    @classmethod
    def __torch_function__(
        cls,
        function: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The result for every record; NotBroadcast for a use that is not supported."""
        with torch._C.DisableTorchFunctionSubclass():
            return _called(function, args, kwargs or {})


def stand_in(values: Tensor) -> Tensor:
    """The stand-in that `values` (records, *shape) are behind."""
    return values.as_subclass(StandIn)


def records_first(x: Tensor) -> Tensor:
    """A stand-in of shape (1, ...) as a tensor (records, ...); other tensors as they are."""
    if not isinstance(x, StandIn):
        return x
    with torch._C.DisableTorchFunctionSubclass():
        return _beside(x, x.dim() - 1)


def _called(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    name = getattr(function, "__name__", "")
    leaves, form = tree_flatten((args, dict(kwargs)))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if all(isinstance(leaf, StandIn) for leaf in tensors):
        if name == "expand":
            return _expanded(args[0], _sizes(args[1:]))
        if name == "repeat":
            return _repeated(args[0], _sizes(args[1:]))
        return _for_each(function, leaves, form)
    if name in ELEMENTWISE:
        changes = name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))
        if changes and isinstance(args[0], StandIn):
            raise NotBroadcast(f"changed in place by {name}")
        dims = max(leaf.dim() for leaf in tensors if not isinstance(leaf, StandIn))
        if all(leaf.dim() - 1 > dims for leaf in tensors if isinstance(leaf, StandIn)):
            # A constant that broadcasts within the value of a record.
            return stand_in(function(*tree_map(_behind, args), **tree_map(_behind, dict(kwargs))))
    elif name in JOINING:
        dims = next(leaf.dim() for leaf in tensors if not isinstance(leaf, StandIn))
        along = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        if along % dims == 0:
            raise NotBroadcast("joined along the records")
        rows = next(len(leaf) for leaf in tensors if not isinstance(leaf, StandIn))
        if any(isinstance(leaf, StandIn) and leaf.shape[0] != rows for leaf in tensors):
            raise NotBroadcast("joined to a tensor without a dimension of records")
    else:
        raise NotBroadcast(f"used by {name or function}")
    parts = [_beside(leaf, dims) if isinstance(leaf, StandIn) else leaf for leaf in leaves]
    args, kwargs = tree_unflatten(parts, form)
    return function(*args, **kwargs)


def _behind(leaf: Any) -> Any:
    return leaf.as_subclass(Tensor) if isinstance(leaf, StandIn) else leaf


def _beside(value: StandIn, dims: int) -> Tensor:
    """The tensor behind, so that it broadcasts with records that have `dims` dimensions."""
    behind = value.as_subclass(Tensor)
    rows, *shape = behind.shape
    if len(shape) < dims:
        return behind.view(rows, *[1] * (dims - 1 - len(shape)), *shape)
    if len(shape) == dims and dims > 0 and shape[0] == 1:
        return behind.squeeze(1)
    raise NotBroadcast(f"of shape {tuple(shape)} beside {dims} dimensions")


def _sizes(given: Sequence[Any]) -> list[int]:
    return list(given[0] if len(given) == 1 and not isinstance(given[0], int) else given)


def _expanded(value: StandIn, sizes: list[int]) -> Tensor:
    """`expand`; a first dimension stays 1, because broadcasting repeats it where it must."""
    behind = value.as_subclass(Tensor)
    rows, *shape = behind.shape
    new = len(sizes) - len(shape)
    if new > 0 or (shape and shape[0] == 1):
        sizes[0] = 1
    return stand_in(behind.view(rows, *[1] * new, *shape).expand(rows, *sizes))


def _repeated(value: StandIn, times: list[int]) -> Tensor:
    """`repeat` of the first dimension alone, which is as `expand`."""
    if any(count != 1 for count in times[1:]):
        raise NotBroadcast("repeated along other dimensions than the first")
    return _expanded(value, [times[0], *[-1] * (value.dim() - 2)])


def _for_each(function: Any, leaves: Sequence[Any], form: Any) -> Any:
    """The function of each record's values; what is no tensor, such as a shape, as it is."""
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, StandIn)]

    def of_one(*values: Tensor) -> Any:
        filled = list(leaves)
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        args, kwargs = tree_unflatten(filled, form)
        return function(*args, **kwargs)

    behind = [leaves[place].as_subclass(Tensor) for place in places]
    first = of_one(*(value[0] for value in behind))
    if not any(isinstance(leaf, Tensor) for leaf in tree_flatten(first)[0]):
        return first
    return tree_map(stand_in, torch.vmap(of_one)(*behind))
