"""Digests of data: by which trainings on the same records are known, and records found twice."""

import dataclasses
import functools
import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

_PLAIN = (bool, int, float, complex, str, bytes, range, slice, type(None), np.generic)
# Numbers of objects that are equal only to themselves; versions and digests of tensors.
_numbers, _numbered, _known = itertools.count(), WeakIdKeyDictionary(), WeakIdKeyDictionary()
_held: list[Any] = []


def digest(*parts: Any) -> str:
    """Hex digest of plain values, containers, dataclasses, tensors and arrays, by their values.

    Arrays mapped from a file count by that file's path, size and time of change and by their part
    of it: nothing of it is read. A tensor is read again only after torch changed it. Other objects
    are equal only to themselves, and the digest is then valid in this process alone.
    """
    return _hash(_text(parts).encode())


def row_digests(rows: Tensor | np.ndarray) -> list[bytes]:
    """A digest of each record of (n, ...): records of one type and shape share it if equal."""
    flat = rows.reshape(len(rows), -1)
    if isinstance(flat, Tensor):
        flat = flat.detach().cpu().contiguous().view(torch.uint8).numpy()
    return [hashlib.blake2b(row, digest_size=16).digest() for row in np.ascontiguousarray(flat)]


def values_of(model: nn.Module) -> str:
    """Digest of all parameters and buffers, read anew."""
    return digest([(name, content_of(value)) for name, value in model.state_dict().items()])


def content_of(value: Tensor) -> str:
    """Digest of a tensor, read anew: writing to `.data` leaves its version as it was."""
    return f"{value.dtype} {tuple(value.shape)} {_hash(numbers_of(value))}"


def numbers_of(value: Tensor) -> Any:
    """The bytes of a tensor's numbers."""
    host = value.detach()
    if host.layout != torch.strided:
        host = host.to_dense()
    host = host.cpu().contiguous()
    return host.reshape(-1).view(torch.uint8).numpy() if host.numel() else b""


def is_mapped(value: Any) -> bool:
    """Whether an array is memory-mapped, or a view of one that is."""
    return isinstance(value, np.ndarray) and _mapped_file(value) is not None


def _hash(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(value: Any) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Tensor):
        return _tensor_text(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        mapped = _mapped_file(value)
        if mapped is not None:
            return _mapped_text(value, mapped)
        return f"{value.dtype} {value.shape} {_hash(np.ascontiguousarray(value))}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(key)}: {_text(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, functools.partial):
        return f"partial {_text([value.func, value.args, value.keywords])}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"{_text(type(value))} {_text(vars(value))}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__} {_number(value)}"
    return f"object {_number(value)}"


def _number(value: Any) -> int:
    """The number of an object that is equal only to itself."""
    try:
        return int(_numbered.setdefault(value, next(_numbers)))
    except TypeError:
        # No weak reference is possible: hold the object, so that no other one gets its address.
        for number, held in enumerate(_held):
            if held is value:
                return -1 - number
        _held.append(value)
        return -len(_held)


def _tensor_text(value: Tensor) -> str:
    version = None if value.is_inference() else value._version
    known = _known.get(value)
    if known is None or known[0] is None or known[0] != version:
        known = version, content_of(value)
        _known[value] = known
    return str(known[1])


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
