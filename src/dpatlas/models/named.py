"""Networks by name and options, before they are given their initial weights."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dpatlas.errors import InputError
from dpatlas.models.network import Network


def made(
    make: Callable[..., Network],
    name: str,
    image_shape: Sequence[int],
    outputs: int,
    options: Mapping[str, Any],
) -> Network:
    """The network that `make` gives, called `name` in messages, with weights to be overwritten.

    Raises InputError for an option that `make` does not take.
    """
    known = set(inspect.signature(make).parameters) - {"image_shape", "outputs"}
    for option in sorted(set(options) - known):
        raise InputError(f"options of {name}", option, ", ".join(sorted(known)) or "none")
    # torch draws weights of its own here; its generator stays as it was.
    with torch.random.fork_rng(devices=[]):
        return make(image_shape=tuple(image_shape), outputs=outputs, **options)
