"""Digests of everything that the noisy sums of a training depend on.

Trainings with equal fingerprints and equal initial weights release the same bits, so they may draw
the same noise; networks with equal fingerprints need only one probe. A fingerprint is meant to
catch mistakes: a change that torch does not see, such as writing to a numpy array that shares
memory with a tensor, goes unnoticed.
"""

import functools
import hashlib
import itertools
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

_BY_VALUE = (bool, int, float, complex, str, bytes, range, slice, np.generic)
# Attributes in which a module stores what `_settings` reads by other means.
REGISTRIES = {"_parameters", "_buffers", "_modules"}

_numbers = itertools.count()
# Numbers of functions and classes; versions and digests of tensors.
_numbered, _known = WeakIdKeyDictionary(), WeakIdKeyDictionary()
_held: dict[int, tuple[int, Any]] = {}


def fingerprint(*parts: Any) -> str:
    """Hex digest of `parts`.

    Tensors and arrays count by value, arrays mapped from a file by that file's path, size and time
    of change and by their part of it (nothing of it is read), modules by class, settings and shapes
    (not by their weights), other objects by class and attributes; functions and classes are equal
    only to themselves, so a fingerprint is valid within this process. A tensor is read again only
    after torch changed it.
    """
    return _digest(_text(parts).encode())


def initial_values(model: nn.Module) -> str:
    """Digest of all parameters and buffers."""
    # Not cached: weights change with every step.
    return fingerprint([(name, content_of(value)) for name, value in model.state_dict().items()])


def _digest(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(value: Any, within: tuple[int, ...] = ()) -> str:
    """A text that is equal for equal values; `within`: ids of the objects that contain this one."""
    if value is None or isinstance(value, _BY_VALUE):
        return repr(value)
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    if isinstance(value, Tensor):
        return _tensor_text(value)
    if isinstance(value, np.ndarray) and (mapped := _mapped_file(value)) is not None:
        return _mapped_text(value, mapped)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {_digest(np.ascontiguousarray(value))}"
    if id(value) in within:
        return f"above by {len(within) - within.index(id(value))}"
    text = functools.partial(_text, within=(*within, id(value)))
    if isinstance(value, dict):
        return f"{{{', '.join(f'{text(k)}: {text(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, set | frozenset):
        return f"set {sorted(map(text, value))}"
    if isinstance(value, nn.Module):
        return f"{text(type(value))} {text(_settings(value))}"
    if isinstance(value, functools.partial):
        return f"partial {text([value.func, value.args, value.keywords])}"
    if isinstance(value, MethodType):
        return f"method {text([value.__self__, value.__func__])}"
    name = getattr(value, "__qualname__", None)
    if name is None and hasattr(value, "__dict__"):
        return f"{text(type(value))} {text(vars(value))}"
    # A name alone would not do: in a notebook a function is defined anew under its old one.
    return f"{name or type(value)} {_number(value)}"


def _number(value: Any) -> int:
    """The number of an object that is equal only to itself."""
    number = next(_numbers)
    try:
        return _numbered.setdefault(value, number)
    except TypeError:
        # No weak reference is possible: hold the object, so that no other one gets its address.
        return _held.setdefault(id(value), (number, value))[0]


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


def _mapped_text(value: np.ndarray, mapped: Any) -> str:
    """A text of the file that an array is mapped from, and of the array's place in it."""
    stat = Path(mapped.filename).stat()
    place = value.__array_interface__["data"][0] - mapped.__array_interface__["data"][0]
    layout = (str(value.dtype), value.shape, value.strides, mapped.offset, place)
    return f"file {mapped.filename} {stat.st_size} {stat.st_mtime_ns} {layout}"


def content_of(value: Tensor) -> str:
    """Digest of a tensor, read anew: writing to `.data` leaves its version as it was."""
    host = value.detach()
    host = host if host.device.type == "cpu" else host.cpu()
    # numpy has no bfloat16.
    host = host.view(torch.int16) if host.dtype == torch.bfloat16 else host
    return f"{value.dtype} {tuple(value.shape)} {_digest(np.ascontiguousarray(host.numpy()))}"
