"""Digests of everything that the noisy sums of a training depend on.

Trainings with equal fingerprints and equal initial weights release the same bits, so they may draw
the same noise; networks with equal fingerprints need only one probe. A fingerprint is meant to
catch mistakes: a change that torch does not see, such as writing to a numpy array that shares
memory with a tensor, goes unnoticed.
"""

import array
import collections
import dis
import functools
import hashlib
import itertools
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, MemberDescriptorType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

_BY_VALUE = (bool, int, float, complex, str, bytes, bytearray, range, slice, np.generic)
_SEQUENCES = (list, tuple, collections.deque, array.array)
# The globals that are settings of the functions that read them.
_PLAIN = (*_BY_VALUE, *_SEQUENCES, dict, set, frozenset, Tensor, np.ndarray)
# Packages whose functions read only globals that do not change.
_CONSTANT = ("builtins", "dpatlas", "torch")
# Attributes in which a module stores what `_settings` reads by other means.
REGISTRIES = {"_parameters", "_buffers", "_modules"}

_numbers = itertools.count()
# Numbers of functions and classes; versions and digests of tensors.
_numbered, _known = WeakIdKeyDictionary(), WeakIdKeyDictionary()
_held: dict[int, tuple[int, Any]] = {}


def fingerprint(*parts: Any, anew: bool = False, lasting: bool = False) -> str:
    """Hex digest of `parts`.

    Tensors and arrays count by value, arrays mapped from a file by that file's path, size and time
    of change and by their part of it (nothing of it is read), modules by class, settings and shapes
    (not by their weights), other objects by class, attributes and slots. Functions and classes are
    equal only to themselves, so a fingerprint is valid within this process, and only while their
    defaults, what they enclose and the plain globals that they read stay the same. A tensor is read
    again only after torch changed it, or if `anew`. If `lasting`, functions and classes count by
    their code in place of that, parameters by shape, and the fingerprint is valid in any process
    and on any device.
    """
    return _digest(_Reading(anew, lasting).text(parts).encode())


def row_digests(rows: Tensor | np.ndarray) -> list[bytes]:
    """A digest of each record of (n, ...): records of one type and shape share it if equal."""
    flat = rows.reshape(len(rows), -1)
    if isinstance(flat, Tensor):
        flat = flat.detach().cpu().contiguous().view(torch.uint8).numpy()
    return [hashlib.blake2b(row, digest_size=16).digest() for row in np.ascontiguousarray(flat)]


def arrays_in(
    name: str, value: Any, seen: set[int] | None = None
) -> Iterator[tuple[str, Tensor | np.ndarray]]:
    """Every tensor and array that a value holds, or its functions enclose or read, with its name.

    seen: ids of the objects that were read before.
    """
    seen = set() if seen is None else seen
    if isinstance(value, Tensor | np.ndarray):
        yield name, value
    if isinstance(value, (*_BY_VALUE, Tensor, np.ndarray)) or id(value) in seen:
        return
    seen.add(id(value))
    parts: Iterable[tuple[Any, Any]] = _parts(value) or ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, (*_SEQUENCES, set, frozenset)):
        parts = enumerate(value)
    for key, part in parts:
        # A module's parameters are its own, whatever dict they are in.
        yield from arrays_in(name if key in REGISTRIES else f"{name}.{key}", part, seen)
    if not isinstance(value, type):
        yield from arrays_in(name, type(value), seen)


def shared_by(kind: type) -> Iterator[tuple[str, Any]]:
    """By name, the plain values that all objects of a class share, and that may change.

    They are the attributes of the class and the globals that its methods read.
    """
    for name, member in _class_members(kind):
        if isinstance(member, _PLAIN) and not name.startswith("__"):
            yield f"class attribute {name}", member
    for function in _functions(kind):
        for name, value in _globals(function):
            if isinstance(value, _PLAIN):
                yield f"global {name}", value


def numbers_in(parts: Iterable[Any]) -> set[float]:
    """Numbers that the code of modules and functions compares with or sets, as far as it is read.

    They are the constants in the methods of their classes, their attributes, and the defaults and
    globals of the functions; nothing of torch's own classes and of those of this package.
    """
    constants: list[Any] = []
    functions: list[FunctionType] = []
    for part in parts:
        own = [part] if isinstance(part, FunctionType) else []
        if not isinstance(part, FunctionType | type) and not _is_constant(type(part)):
            attributes = getattr(part, "__dict__", {})
            constants += [value for name, value in attributes.items() if name not in REGISTRIES]
            constants += [value for _, value in shared_by(type(part))]
            functions += [each for each in _functions(type(part)) if each.__name__ != "__init__"]
            own = [value for value in attributes.values() if isinstance(value, FunctionType)]
        functions += [each for one in own for each in _functions(one)]
    for function in functions:
        if not _is_constant(function):
            constants += [*function.__code__.co_consts, *(value for _, value in _read_by(function))]
    # The list grows while it is read.
    for value in constants:
        if isinstance(value, CodeType):
            constants += value.co_consts
        elif isinstance(value, tuple | list):
            constants += value
    return {
        float(value)
        for value in constants
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30
    }


def initial_values(model: nn.Module) -> str:
    """Digest of all parameters and buffers."""
    # Not cached: weights change with every step.
    return fingerprint([(name, content_of(value)) for name, value in model.state_dict().items()])


def _digest(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


class _Reading:
    """Texts of values, equal for equal values; an object is read once, however often it is met."""

    def __init__(self, anew: bool, lasting: bool):
        self.anew, self.lasting = anew, lasting
        # Ids of the objects that contain the present one.
        self.within: list[int] = []
        # Objects and their texts' digests, by id; held, so that no other one gets its address.
        self.known: dict[int, tuple[Any, str]] = {}

    def text(self, value: Any) -> str:
        """The text of a value."""
        if value is None or isinstance(value, _BY_VALUE):
            return repr(value)
        if isinstance(value, torch.dtype | torch.device):
            return "device" if self.lasting and isinstance(value, torch.device) else str(value)
        if isinstance(value, weakref.ref):
            # It holds nothing: an LSTM's refer to whichever weights it was last called with.
            return "weak reference"
        if self.lasting and isinstance(value, nn.Parameter):
            return f"parameter {value.dtype} {tuple(value.shape)}"
        if isinstance(value, Tensor):
            return content_of(value) if self.anew else _tensor_text(value)
        if isinstance(value, np.ndarray) and (mapped := _mapped_file(value)) is not None:
            return _mapped_text(value, mapped)
        if isinstance(value, np.ndarray) and value.dtype != object:
            return f"{value.dtype} {value.shape} {_digest(np.ascontiguousarray(value))}"
        if id(value) in self.within:
            return f"above by {len(self.within) - self.within.index(id(value))}"
        if id(value) not in self.known:
            self.within.append(id(value))
            self.known[id(value)] = value, _digest(self._whole(value).encode())
            self.within.pop()
        return self.known[id(value)][1]

    def _whole(self, value: Any) -> str:
        """The text of something that has parts, or is equal only to itself."""
        if isinstance(value, dict):
            items = (f"{self.text(key)}: {self.text(item)}" for key, item in value.items())
            return f"{{{', '.join(items)}}}"
        if isinstance(value, np.ndarray):
            return f"{value.shape} {self.text(value.tolist())}"
        if isinstance(value, _SEQUENCES):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, set | frozenset):
            return f"set {sorted(map(self.text, value))}"
        if isinstance(value, nn.Module):
            return f"{self.text(type(value))} {self.text(_settings(value))}"
        parts = _parts(value)
        # A name alone would not do: in a notebook a function is defined anew under its old one.
        alone = parts is None or isinstance(value, FunctionType | type)
        name = getattr(value, "__qualname__", None) or type(value)
        itself = _code_of(value) if self.lasting else _number(value)
        whose = f"{name} {itself}" if alone else self.text(type(value))
        return f"{whose} {self.text(parts)}"


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """By name, what an object that is no container consists of; None if nothing is known of it."""
    if isinstance(value, functools.partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, MethodType):
        return [("self", value.__self__), ("func", value.__func__)]
    if isinstance(value, FunctionType | type):
        own = [] if isinstance(value, FunctionType) else _class_members(value)
        plain = [(name, member) for name, member in own if isinstance(member, _PLAIN)]
        return [*plain, *(part for function in _functions(value) for part in _read_by(function))]
    members = [
        (name, member)
        for kind in type(value).__mro__
        if "__slots__" in vars(kind)
        for name, member in vars(kind).items()
        if isinstance(member, MemberDescriptorType)
    ]
    attributes = getattr(value, "__dict__", None)
    if hasattr(value, "__qualname__") or (attributes is None and not members):
        return None
    slots = [(name, member.__get__(value)) for name, member in members if _filled(member, value)]
    return [*slots, *(attributes or {}).items()]


def _functions(value: FunctionType | type) -> list[FunctionType]:
    """A function, or the methods of a class, with those of its module that they call in turn."""
    functions = [value] if isinstance(value, FunctionType) else []
    if isinstance(value, type):
        members = (_function_of(member) for _, member in _class_members(value))
        functions += [member for member in members if isinstance(member, FunctionType)]
    # The list grows while it is read.
    for function in functions:
        functions += [
            other
            for _, other in _globals(function)
            if isinstance(other, FunctionType)
            and other.__globals__ is function.__globals__
            and other not in functions
        ]
    return functions


def _function_of(member: Any) -> Any:
    """The function behind a static or class method, or a property."""
    return getattr(member, "__func__", None) or getattr(member, "fget", None) or member


def _class_members(kind: type) -> list[tuple[str, Any]]:
    return [
        member for base in kind.__mro__ if not _is_constant(base) for member in vars(base).items()
    ]


def _read_by(function: FunctionType) -> list[tuple[str, Any]]:
    """A function's defaults, attributes, what it encloses and the plain globals that it reads."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [
        ("defaults", function.__defaults__),
        ("keyword defaults", function.__kwdefaults__),
        *vars(function).items(),
        *((name, cell.cell_contents) for name, cell in cells if _filled(cell)),
        *((name, value) for name, value in _globals(function) if isinstance(value, _PLAIN)),
    ]


def _globals(function: FunctionType) -> list[tuple[str, Any]]:
    """The globals that a function reads, by name."""
    if _is_constant(function):
        return []
    names = sorted(set(_global_names(function.__code__)))
    return [(name, function.__globals__[name]) for name in names if name in function.__globals__]


@functools.lru_cache(maxsize=4096)
def _global_names(code: CodeType) -> list[str]:
    """Names of the globals in a function's code, and in that of the functions inside."""
    inside = (part for part in code.co_consts if isinstance(part, CodeType))
    own = (
        step.argval for step in dis.get_instructions(code) if step.opname.startswith("LOAD_GLOBAL")
    )
    return [*own, *(name for part in inside for name in _global_names(part))]


def _is_constant(value: FunctionType | type) -> bool:
    return (value.__module__ or "").partition(".")[0] in _CONSTANT


def _filled(cell: Any, *owner: Any) -> bool:
    """Whether a function's cell, or an owner's slot, has a value yet."""
    try:
        cell.__get__(*owner) if owner else cell.cell_contents
    except (AttributeError, ValueError):
        return False
    return True


def _number(value: Any) -> int:
    """The number of an object that is equal only to itself."""
    number = next(_numbers)
    try:
        return _numbered.setdefault(value, number)
    except TypeError:
        # No weak reference is possible: hold the object, so that no other one gets its address.
        return _held.setdefault(id(value), (number, value))[0]


def _code_of(value: Any) -> str:
    """The code of a function, or of a class; of others the module that has them."""
    if isinstance(value, FunctionType | type) and not _is_constant(value):
        return str([_code_text(function.__code__) for function in _functions(value)])
    return str(getattr(value, "__module__", None))


@functools.lru_cache(maxsize=4096)
def _code_text(code: CodeType) -> str:
    """Digest of what a function does: its instructions, and the names and constants in them."""
    return _digest(
        f"{code.co_code.hex()} {code.co_names} {_constant_text(code.co_consts)}".encode()
    )


def _constant_text(value: Any) -> str:
    if isinstance(value, CodeType):
        return _code_text(value)
    if isinstance(value, tuple | frozenset):
        texts = map(_constant_text, value)
        return str(list(texts) if isinstance(value, tuple) else sorted(texts))
    return repr(value)


def _settings(module: nn.Module) -> list[Any]:
    """Attributes other than weights, shapes of the weights, and submodules."""
    attributes = {name: value for name, value in vars(module).items() if name not in REGISTRIES}
    weights = itertools.chain(
        module.named_parameters(recurse=False), module.named_buffers(recurse=False)
    )
    shapes = {name: (value.dtype, value.device, tuple(value.shape)) for name, value in weights}
    return [attributes, shapes, dict(module.named_children())]


def _tensor_text(value: Tensor) -> str:
    version = None if value.is_inference() else value._version
    known = _known.get(value)
    if known is None or known[0] is None or known[0] != version:
        known = version, content_of(value)
        _known[value] = known
    return known[1]


def _mapped_file(value: np.ndarray) -> Any:
    """The memory-mapped array that `value` is, or is a view of; None for any other."""
    array: Any = value
    found = None
    # A part of a mapped array calls itself mapped too: the last one begins where the file's does.
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.filename is not None:
            found = array
        array = array.base
    return found


def is_mapped(value: Any) -> bool:
    """Whether an array is memory-mapped, or a view of one that is."""
    return isinstance(value, np.ndarray) and _mapped_file(value) is not None


def _mapped_text(value: np.ndarray, mapped: Any) -> str:
    """A text of the file that an array is mapped from, and of the array's place in it."""
    stat = Path(mapped.filename).stat()
    place = value.__array_interface__["data"][0] - mapped.__array_interface__["data"][0]
    layout = (str(value.dtype), value.shape, value.strides, mapped.offset, place)
    return f"file {mapped.filename} {stat.st_size} {stat.st_mtime_ns} {layout}"


def content_of(value: Tensor) -> str:
    """Digest of a tensor, read anew: writing to `.data` leaves its version as it was."""
    host = value.detach()
    if host.layout != torch.strided and not host.is_nested:
        coordinates = host.to_sparse_coo().coalesce()
        parts = map(content_of, (coordinates.indices(), coordinates.values()))
        return f"sparse {tuple(value.shape)} {' '.join(parts)}"
    host = host if host.device.type == "cpu" else host.cpu()
    # numpy has no bfloat16.
    host = host.view(torch.int16) if host.dtype == torch.bfloat16 else host
    return f"{value.dtype} {tuple(value.shape)} {_digest(np.ascontiguousarray(host.numpy()))}"
