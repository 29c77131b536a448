"""What a network, a loss, an augmentation and the process keep, in a form that can be compared."""

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.privacy.fingerprint import REGISTRIES, content_of, fingerprint, shared_by

ALLOWED = "a state that no record moves"
_ALLOWED = {
    "parameters' .grad": "gradients through the layers' forward alone",
    "parameters, buffers and attributes": ALLOWED,
    "torch's global generator": "no randomness outside of the keyed streams",
    "numpy's global generator": "no randomness outside of the keyed streams",
    "random's global generator": "no randomness outside of the keyed streams",
}

# What calling a module may run beside its forward.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def hooks_of_all() -> list[dict[int, Any]]:
    """The hooks that torch runs for every module, of each kind."""
    return [dict(getattr(nn.modules.module, f"_global{kind}")) for kind in HOOKS]


@contextlib.contextmanager
def unchanged(where: str, value: Any) -> Iterator[None]:
    """InputError if the model's, loss's or augmentation's state changes in the meantime."""
    before = state_of(where, value)
    yield
    refuse_changes(before, state_of(where, value))


def refuse_changes(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """InputError that names the first thing in which two states differ."""
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            raise InputError(name, "changed by a forward pass", ALLOWED)


@contextlib.contextmanager
def nothing_else_changed(model: nn.Module) -> Iterator[None]:
    """InputError if what a probe of a copy must not touch changes in the meantime."""
    before = _global_state(model)
    yield
    for name, value in _global_state(model).items():
        if value != before[name]:
            raise InputError(name, "changed by a forward and backward pass", _ALLOWED[name])


def _global_state(model: nn.Module) -> dict[str, Any]:
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002  (to detect its use)
    return {
        "parameters' .grad": tuple(
            None if value.grad is None else (id(value.grad), value.grad._version)
            for value in model.parameters()
        ),
        # What instances share is filled by the copies, too: a cache of masks for one.
        "parameters, buffers and attributes": state_of("model", model, shared=False),
        "torch's global generator": torch.get_rng_state().numpy().tobytes(),
        "numpy's global generator": str(numpy_state["state"]),
        "random's global generator": random.getstate(),
    }


def state_of_both(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> dict[str, str]:
    """Digests by name of what a network and a loss keep."""
    return state_of("model", model) | state_of("loss", loss)


def refuse_set_by_records(
    fresh: Mapping[str, str],
    after: Mapping[str, str],
    again: Callable[[], Mapping[str, str]],
    others: Iterable[Callable[[], Mapping[str, str]]],
) -> None:
    """InputError if what a first pass sets, such as a centre, depends on its records.

    fresh, after: the state before and after a first pass. again, others: the states of new copies
    after a pass over the same records, and over others of the same shape.
    """
    changed = [name for name in after if after[name] != fresh.get(name)]
    if changed:
        same, different = again(), [other() for other in others]
        for name in changed:
            # What differs after the same records too is no function of them.
            if same.get(name) == after[name] and any(
                after[name] != each.get(name) for each in different
            ):
                raise InputError(name, "set from the records of a first forward pass", ALLOWED)


def state_of(where: str, value: Any, *, shared: bool = True) -> dict[str, str]:
    """Digests by name: of a network every module's parameters, buffers and attributes.

    shared: with what its classes' attributes and the globals of their methods hold.
    """
    if not isinstance(value, nn.Module):
        return {where: fingerprint(value, anew=True)}
    state = {}
    for name, module in value.named_modules():
        prefix = f"{'' if where == 'model' else f'{where}: '}layer {name}" if name else where
        for key, parameter in module.named_parameters(recurse=False):
            state[f"{prefix}: parameter {key}"] = content_of(parameter)
        for key, buffer in module.named_buffers(recurse=False):
            state[f"{prefix}: buffer {key}"] = content_of(buffer)
        for key, attribute in vars(module).items():
            # What a hook keeps is its own matter, as long as outputs do not depend on it.
            hooks = key.endswith("_hooks") and isinstance(attribute, dict)
            watched = list(attribute) if hooks else attribute
            if key not in REGISTRIES:
                state[f"{prefix}: attribute {key}"] = fingerprint(watched, anew=True)
    for kind in {type(module): None for module in value.modules()} if shared else ():
        for name, held in shared_by(kind):
            state[f"{where}: {name} ({kind.__name__})"] = fingerprint(held, anew=True)
    return state
