"""Private records and their targets, wherever they are: fetched by the rows that a step draws.

Tensors on the model's device are indexed there. Tensors elsewhere, arrays and memory-mapped files
are indexed where they are, and the rows are moved. Of a map-style dataset (`__getitem__` and
`__len__`, as torch's) the drawn items are fetched one by one: nothing else of it is ever read, but
for item 0, whose shapes the probe needs, and the few by which several processes compare theirs.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import IterableDataset
from torch.utils.weak import WeakIdKeyDictionary

from dpatlas.errors import InputError
from dpatlas.privacy.digest import digest, is_mapped
from dpatlas.privacy.to_device import to_device
from dpatlas.privacy.units import Rows

# Of datasets, by object: their digests when they were first seen.
_identities: Any = WeakIdKeyDictionary()

# Rows on the model's device: a slice, or a tensor of indices.
Located = slice | Tensor


class InMemory:
    """Tensors or arrays (n, ...), or a tuple or dict of them; targets alike, or None."""

    def __init__(self, x: Any, targets: Any, device: torch.device):
        self.x, self.targets, self.device = x, targets, device
        self.leaves = _leaves("x", x) | ({} if targets is None else _leaves("labels", targets))
        lengths = {name: len(leaf) for name, leaf in self.leaves.items()}
        self.n = next(iter(lengths.values()))
        if self.n == 0:
            raise InputError("data", "0 records", "at least one")
        for name, length in lengths.items():
            if length != self.n:
                raise InputError(name, f"{length} records", f"{self.n}, as the others")

    @property
    def on_device(self) -> bool:
        """Whether the records are one tensor on the model's device."""
        return isinstance(self.x, Tensor) and self.x.device == self.device

    def take(self, rows: Rows, where: Located) -> tuple[Any, Any]:
        """Records and targets of some rows, on the model's device; `where`: the same rows there.

        In tuples and dicts as they were given; None for targets where there are none.
        """

        def some(values: Any) -> Any:
            if isinstance(values, dict):
                return {name: some(each) for name, each in values.items()}
            if isinstance(values, tuple):
                return tuple(map(some, values))
            return None if values is None else self._rows(values, rows, where)

        return some(self.x), some(self.targets)

    def sample(self) -> tuple[Any, Any]:
        """The first record and its target."""
        return self.take(slice(0, 1), slice(0, 1))

    def identity(self) -> Any:
        """What tells these records from others, for `digest`."""
        return self.x, self.targets

    def digest(self) -> str | None:
        """The same as a text that is valid everywhere; None for mapped files: none is read."""
        mapped = any(map(is_mapped, self.leaves.values()))
        return None if mapped else digest(self.x, self.targets)

    def _rows(self, values: Any, rows: Rows, where: Located) -> Tensor:
        if isinstance(values, Tensor) and values.device == self.device:
            return rows_of(values, where)
        if isinstance(values, Tensor):
            picked = rows if isinstance(rows, slice) else torch.from_numpy(rows)
            return to_device(values[picked], self.device)
        # A copy, also of a slice of a file that is mapped for reading.
        return to_device(_tensor(np.array(values[rows])), self.device)


class FromDataset:
    """A map-style dataset of items (input, target); an input may be a tuple or dict of tensors.

    The target may be None. An item must always be the same: random transforms belong into an
    augmentation, whose draws are keyed. workers: threads that fetch items at the same time, in an
    order of their own; a batch has them in the order of its indices, whatever their number.
    """

    on_device = False

    def __init__(self, dataset: Any, device: torch.device, workers: int = 0):
        self.dataset, self.device = dataset, device
        self._map = ThreadPoolExecutor(workers).map if workers else map
        self._identity = _own_text(dataset) or _identity_of(dataset)
        self.n = len(dataset)
        if self.n == 0:
            raise InputError("data", "0 records", "at least one")
        # What the fetched items were like: the parts of their inputs, and whether without a target.
        self._kinds: set[tuple[str, bool]] = set()
        self._first: tuple[Any, Any] | None = None
        first, again = self._fetch([0]), self._fetch([0])
        for one, other in zip(tensors_of(first), tensors_of(again), strict=True):
            if not torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)):
                found = "two results for item 0"
                raise InputError("dataset", found, "the same item every time; an `augmentation`")
        self._first = first
        self.targets = first[1]

    def take(self, rows: Rows, where: Located) -> tuple[Any, Any]:
        """As `InMemory.take`."""
        indices = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        assert self._first is not None
        fetched = self._fetch(list(indices)) if len(indices) else self._first
        count = len(indices)
        moved = tree_map_only(Tensor, lambda each: to_device(each, self.device)[:count], fetched)
        return moved[0], moved[1]

    def sample(self) -> tuple[Any, Any]:
        """The first record and its target."""
        return self.take(slice(0, 1), slice(0, 1))

    def identity(self) -> Any:
        """What tells this dataset from others, for `digest`; none of its items is read.

        A text in its attribute `fingerprint` (or `_fingerprint`), else its class and attributes
        when it was first trained on, so that lists and dicts that it fills later make it no other
        dataset; and its numbers, texts, tensors and arrays when this training was made.
        """
        return self._identity

    def digest(self) -> str | None:
        """The text of its own; None without one, as objects are known within a process only."""
        return _own_text(self.dataset)

    def _fetch(self, indices: list[int]) -> tuple[Any, Any]:
        """Inputs and targets of items, stacked; InputError for items unlike the others."""
        items = list(self._map(self._item, indices))
        inputs, targets = ([item[place] for item in items] for place in (0, 1))
        self._kinds |= {(_parts_of(one), target is None) for one, target in items}
        if len(parts := {kind for kind, _ in self._kinds}) > 1:
            found = f"inputs of {' and '.join(sorted(parts))}"
            raise InputError("dataset", found, "inputs of the same parts in every item")
        if len(missing := {without for _, without in self._kinds}) > 1:
            allowed = "a target in every item, or None in every item"
            raise InputError("dataset", "items with a target and items without", allowed)
        stacked = _stacked(inputs), None if missing == {True} else _stacked(targets)
        if self._first:
            for one, other in zip(tensors_of(stacked), tensors_of(self._first), strict=True):
                _refuse_other_shape(one.shape[1:], other.shape[1:])
        return stacked

    def _item(self, index: int) -> Any:
        """A pair (input, target)."""
        try:
            item = self.dataset[index]
        except (InputError, MemoryError):
            raise
        except Exception as error:  # a stranger's dataset may raise anything
            line = f"{type(error).__name__}: {error}".splitlines()[0]
            found = f"item {index} fails: {line}"
            raise InputError("dataset", found, "items that can all be fetched") from error
        if not isinstance(item, tuple | list) or len(item) != 2:
            found = f"an item of type {type(item).__name__}"
            raise InputError("dataset", found, "pairs (input, target); the target may be None")
        return item


def plain(values: Any) -> Any:
    """Tensors and arrays as torch's and numpy's own classes, on the same memory.

    The code of another class would run at each step, and see the rows of a batch together.
    """
    if isinstance(values, dict):
        return {name: plain(each) for name, each in values.items()}
    if isinstance(values, tuple):
        return tuple(map(plain, values))
    if isinstance(values, np.ma.MaskedArray):
        raise InputError("data", "a masked array", "an array, and its mask as an input of its own")
    if isinstance(values, np.ndarray) and type(values) not in (np.ndarray, np.memmap):
        return values.view(np.ndarray)
    if isinstance(values, Tensor) and type(values) not in (Tensor, torch.nn.Parameter):
        if type(values).__torch_dispatch__ is not Tensor.__torch_dispatch__:
            raise InputError("data", f"a {type(values).__name__}", "a plain tensor")
        with torch._C.DisableTorchFunctionSubclass():
            return values.as_subclass(Tensor)
    return values


def rows_of(values: Tensor, where: Located) -> Tensor:
    """The rows of a tensor on its own device; of a slice, a view."""
    return values[where] if isinstance(where, slice) else values.index_select(0, where)


def _own_text(dataset: Any) -> str | None:
    named = getattr(dataset, "fingerprint", getattr(dataset, "_fingerprint", None))
    return named if isinstance(named, str) else None


def _identity_of(dataset: Any) -> str:
    """The identity of a dataset without a text of its own."""
    try:
        if dataset not in _identities:
            _identities[dataset] = digest(type(dataset), getattr(dataset, "__dict__", dataset))
        first = str(_identities[dataset])
    except TypeError:
        # An object that takes no weak reference.
        first = digest(dataset)
    return digest(first, _plain_parts(dataset))


def _plain_parts(dataset: Any) -> list[Any]:
    kinds = (Tensor, np.ndarray, bool, int, float, str, bytes)
    parts: list[Any] = []
    for name, value in getattr(dataset, "__dict__", {}).items():
        # As those of torch's TensorDataset.
        several = isinstance(value, tuple | list) and bool(value)
        if several and all(isinstance(each, Tensor | np.ndarray) for each in value):
            parts += [(f"{name}.{number}", each) for number, each in enumerate(value)]
        elif isinstance(value, kinds):
            parts.append((name, value))
    return parts


def data_of(x: Any, targets: Any, device: torch.device, workers: int = 0) -> InMemory | FromDataset:
    """The records x and their targets; InputError for what they do not fit.

    workers: of a dataset; records in memory need none.
    """
    if isinstance(x, Tensor | np.ndarray | tuple | dict):
        return InMemory(plain(x), plain(targets), device)
    by_index = hasattr(x, "__getitem__") and hasattr(x, "__len__")
    if not by_index or isinstance(x, list | str | IterableDataset):
        allowed = "a tensor, an array, a tuple or dict of them, or a map-style dataset"
        raise InputError("x", type(x).__name__, allowed)
    if targets is not None:
        raise InputError("labels", "targets beside a dataset", "None: items are (input, target)")
    return FromDataset(x, device, workers)


def refuse_held(data: InMemory | FromDataset, held: Mapping[str, Tensor]) -> None:
    """InputError for a tensor of the network or loss, by name, that is private records or targets.

    That is what shares memory with them, or has their shape and values; other copies go unnoticed.
    """
    if isinstance(data, InMemory):
        private = data.leaves
    else:
        leaves = tree_leaves(getattr(data.dataset, "__dict__", {}))
        arrays = [each for each in leaves if isinstance(each, Tensor | np.ndarray) and each.ndim]
        private = {f"records {at}": each for at, each in enumerate(arrays) if len(each) == data.n}
    for name, tensor in held.items():
        for kind, array in private.items():
            if overlap(tensor, array) or _equal(tensor, array):
                what = "labels" if kind.startswith("labels") else "records"
                allowed = "values that do not depend on them: nothing clips or accounts for it"
                raise InputError(name, f"the private {what}", allowed)


def overlap(one: Tensor | np.ndarray, other: Tensor | np.ndarray) -> bool:
    """Whether the memory from the first to the last number of each has a part in common."""
    (start, stop), (begin, end) = _extent(one), _extent(other)
    return max(start, begin) < min(stop, end)


def _extent(values: Tensor | np.ndarray) -> tuple[int, int]:
    """Addresses of the first byte and behind the last one; (0, 0) without numbers in memory."""
    if isinstance(values, np.ndarray):
        start, size, strides = values.__array_interface__["data"][0], 1, values.strides
    elif values.layout == torch.strided and values.device.type != "meta":
        start, size, strides = values.data_ptr(), values.element_size(), values.stride()
    else:
        return 0, 0
    if 0 in values.shape:
        return 0, 0
    steps = [
        (length - 1) * stride * size for length, stride in zip(values.shape, strides, strict=True)
    ]
    back, ahead = (sum(pick(0, step) for step in steps) for pick in (min, max))
    return start + back, start + ahead + (values.itemsize)


def _equal(one: Tensor | np.ndarray, other: Tensor | np.ndarray) -> bool:
    """Whether both have the same shape and numbers, not all alike; mapped files are not read."""
    if tuple(one.shape) != tuple(other.shape) or one.ndim == 0 or 0 in one.shape:
        return False
    sparse = (isinstance(each, Tensor) and each.layout != torch.strided for each in (one, other))
    if any(map(is_mapped, (one, other))) or any(sparse):
        return False
    first, second = map(_on_host, (one, other))
    return np.array_equal(first, second) and bool((first != first.flat[0]).any())


def _on_host(values: Tensor | np.ndarray) -> np.ndarray:
    """The numbers as an array, with zeros for those that are not finite."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.nan_to_num(values)


def _leaves(where: str, values: Any) -> dict[str, Any]:
    """The tensors and arrays of records or targets by name."""
    named = {where: values}
    if isinstance(values, dict):
        named = {f"{where} {name}": leaf for name, leaf in values.items() if isinstance(name, str)}
    elif isinstance(values, tuple):
        named = {f"{where} {place}": leaf for place, leaf in enumerate(values)}
    for name, leaf in named.items():
        if not isinstance(leaf, Tensor | np.ndarray) or not leaf.ndim:
            raise InputError(name, type(leaf).__name__, "tensors or arrays, records first")
        _refuse_without_numbers(name, leaf)
    if not named or (isinstance(values, dict) and len(named) < len(values)):
        found = f"an empty {type(values).__name__}" if not values else "names that are no texts"
        raise InputError(where, found, "at least one tensor or array, by names that are texts")
    return named


def _stacked(inputs: Sequence[Any]) -> Any:
    """Inputs of single items as one batch."""
    first = inputs[0]
    if isinstance(first, dict):
        return {name: _stack([each[name] for each in inputs]) for name in first}
    if isinstance(first, tuple):
        return tuple(_stack(column) for column in zip(*inputs, strict=True))
    return _stack(inputs)


def _parts_of(value: Any) -> str:
    """The parts of an item's input, in words."""
    if isinstance(value, dict):
        return f"parts {', '.join(sorted(map(str, value)))}"
    return f"{len(value)} parts" if isinstance(value, tuple) else "one tensor"


def _stack(values: Sequence[Any]) -> Tensor:
    tensors = [_tensor(value) for value in values]
    for each in tensors:
        _refuse_other_shape(each.shape, tensors[0].shape)
    return torch.stack(tensors)


def _refuse_other_shape(one: Sequence[int], other: Sequence[int]) -> None:
    if tuple(one) != tuple(other):
        found = f"items of shapes {tuple(other)} and {tuple(one)}"
        raise InputError("dataset", found, "items of one shape, padded where they differ")


def _refuse_without_numbers(where: str, value: Any) -> None:
    """InputError for a tensor that has no dense numbers to fetch rows of."""
    if not isinstance(value, Tensor):
        return
    found = None
    if value.is_nested:
        found = "a nested tensor"
    elif value.layout != torch.strided:
        found = f"a sparse tensor ({value.layout})"
    elif value.device.type == "meta":
        found = "a tensor on meta, without values"
    if found:
        raise InputError(where, found, "a dense tensor with values")


def _tensor(value: Any) -> Tensor:
    value = plain(value)
    _refuse_without_numbers("data", value)
    try:
        return value if isinstance(value, Tensor) else torch.as_tensor(value, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        found = getattr(value, "dtype", type(value).__name__)
        raise InputError("data", f"{found}", "numbers that torch takes") from None


def tensors_of(item: Any) -> list[Tensor]:
    """The tensors in tuples, lists and dicts."""
    return [each for each in tree_leaves(item) if isinstance(each, Tensor)]
