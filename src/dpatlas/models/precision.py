"""How exactly products are made: in float32 throughout, or by a GPU's TF32 in passes of a network.

A pass is a forward pass, or the output gradients that go back through the network. With TF32 its
products take factors of 10 bits after the point and add up in float32, which tensor cores do
several times as fast. What is made of activations and output gradients (per-record gradients, their
norms, clipped sums, KL terms) is multiplied in float32 or float64 whatever the precision: a clip
factor follows from the very numbers that enter the sum, so the bound on a record's share holds.

A script may have told torch to round factors, which is the default of cuDNN's convolutions, and by
`torch.set_float32_matmul_precision("medium")` what a CPU does, to 8 bits. Within `passes` and
`exact` that is off, and within `exact` autocast is, which would round what norms are made of.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

_precision = "float32"
# What multiplies float32, and the settings under which it rounds factors first.
_CPU: Any = torch.backends.mkldnn
_GPU: Any = torch.backends.cudnn
_GPU_MATMUL: Any = torch.backends.cuda.matmul
_ON_CPU: tuple[Any, ...] = (_CPU.matmul, _CPU.conv, _CPU.rnn)
_ON_GPU: tuple[Any, ...] = (_GPU_MATMUL, _GPU.conv, _GPU.rnn)
_ROUNDED = ("bf16", "tf32")


def set_precision(name: str) -> str:
    """Set the precision of all later passes, and return the one before.

    Everything else is float32; all of it is repeatable.
    """
    global _precision
    before, _precision = _precision, name
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    _allow_tf32(False)
    return before


@contextlib.contextmanager
def passes() -> Iterator[None]:
    """Inside, the precision of passes through a network holds."""
    with _tf32(_precision == "tf32"):
        yield


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Inside, a caller's autocast has no effect on this device."""
    if not torch.is_autocast_enabled(device.type):
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Inside, products are full float32, also within a pass."""
    # A small network enters it many times a step: where nothing rounds, nothing is set.
    if _nothing_rounds():
        yield
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(_tf32(False))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _nothing_rounds() -> bool:
    try:
        rounding = _GPU_MATMUL.allow_tf32 or _GPU.allow_tf32
    except RuntimeError:
        # What was set by `fp32_precision` is only known there.
        return False
    return not (
        rounding
        or any(part.fp32_precision in _ROUNDED for part in _ON_CPU)
        or torch.is_autocast_enabled("cpu")
        or torch.is_autocast_enabled("cuda")
    )


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    # torch's flags belong to the process: the thread of a backward pass sees them too.
    try:
        before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        name = torch.get_float32_matmul_precision()
    except RuntimeError:
        # What was set by `fp32_precision` is only known there.
        before, name = None, ""
    parts = _ON_CPU if before or allowed else _ON_CPU + _ON_GPU
    rounded = [(part, found) for part in parts if (found := part.fp32_precision) in _ROUNDED]
    if before in (None, (allowed, allowed)) and not rounded:
        yield
        return
    if before:
        _allow_tf32(allowed)
    for part, _ in rounded:
        part.fp32_precision = "ieee"
    try:
        yield
    finally:
        if before:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
            if name == "medium":
                # Of which the flags know only that it is not the highest.
                torch.set_float32_matmul_precision(name)
        for part, found in rounded:
            part.fp32_precision = found


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
