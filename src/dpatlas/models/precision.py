"""How exactly a GPU multiplies: float32 throughout, or TF32 in passes through a network.

A pass is a forward pass, or the output gradients that go back through the network. With TF32 its
products take factors of 10 bits after the point and add up in float32, which tensor cores do
several times as fast. What is made of activations and output gradients (per-record gradients, their
norms, clipped sums, KL terms) is multiplied in float32 or float64 whatever the precision: a clip
factor follows from the very numbers that enter the sum, so the bound on a record's share holds.
"""

import contextlib
from collections.abc import Iterator

import torch

_precision = "float32"


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


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Inside, products are full float32, also within a pass."""
    with _tf32(False):
        yield


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    # torch's flags belong to the process: the thread of a backward pass sees them too.
    before = torch.backends.cuda.matmul.allow_tf32
    if before == allowed:
        yield
        return
    _allow_tf32(allowed)
    try:
        yield
    finally:
        _allow_tf32(before)


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
