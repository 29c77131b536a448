"""Whether a network does with a batch what it does with each record alone.

The engine trains on each record alone, whatever the network does with batches. Who writes a network
that compares the records of a batch means something else, and is told so before training.
"""

import copy
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from dpatlas.base.digest import ROOTS
from dpatlas.base.seeds import generator
from dpatlas.errors import InputError
from dpatlas.privacy.trace import RecordGraph, called

# Number of made-up records, the key of their numbers, and how far results may differ.
RECORDS, KEY, TOLERANCE = 3, 0x62617463, 1e-3


# Networks of torch's code alone that were found to be so: a digest is of one record, of which other
# code may give the same and do something else with a batch.
_alike: set[tuple[str, str, str]] = set()


def refuse_meeting(
    model: nn.Module, loss: Callable[..., Any], record: RecordGraph, x: Any, target: Any
) -> None:
    """InputError that names the first module whose batch is not what its records are alone.

    x, target: one record, of which shapes and types are used. The calls are of a copy, on made-up
    records; where that is not possible, or the network draws random numbers, nothing is said: what
    is computed is the record's alone in any case.
    """
    known = (record.digest, repr(model), repr(loss)) if _is_ours(model, loss) else None
    if record.draws or known in _alike:
        return
    draws = generator(KEY)

    def made_up(leaf: Tensor) -> Tensor:
        shape = (RECORDS, *leaf.shape[1:])
        if leaf.is_floating_point():
            return torch.from_numpy(draws.standard_normal(shape)).to(leaf)
        return torch.from_numpy(draws.integers(0, 2, shape)).to(leaf)

    batch = pytree.tree_map_only(Tensor, made_up, (x, target))
    try:
        copied = copy.deepcopy(model)
        eager = torch.compiler.set_stance("force_eager")
        with eager, torch.random.fork_rng(devices=[]), torch.no_grad():
            # Copies: a network may write into its input.
            copies = pytree.tree_map_only(Tensor, torch.clone, batch)
            together, losses = _outputs(copied, loss, *copies)
            alone = [_outputs(copied, loss, *_only(batch, at)) for at in range(RECORDS)]
    except Exception:  # made-up records may not be what a network takes
        return
    for at, (name, output) in enumerate(together):
        parts = [outputs[at][1] for outputs, _ in alone if at < len(outputs)]
        whole = torch.cat(parts) if len(parts) == RECORDS else output
        if whole.shape == output.shape and not _same(output, whole):
            found = "a batch whose records meet: its outputs are not those of each record alone"
            allowed = "records that do not, or isolate=True to train on each record alone"
            raise InputError(name, found, allowed)
    each = torch.cat([losses.reshape(1) for _, losses in alone])
    # A loss may add up the records, or take their mean.
    totals = each, each.mean()[None], each.sum()[None]
    if not any(_same(losses.flatten(), total) for total in totals):
        allowed = "one value of each record alone, or isolate=True to train on each alone"
        raise InputError("loss", "values that are not those of each record alone", allowed)
    if known is not None:
        _alike.add(known)


def _is_ours(model: nn.Module, loss: Callable[..., Any]) -> bool:
    """Whether all code of network and loss is torch's or this project's, without hooks."""

    def ours(value: Any) -> bool:
        named = isinstance(value, type | FunctionType | BuiltinFunctionType)
        package = str((value if named else type(value)).__module__).partition(".")[0]
        return package in ("torch", *ROOTS)

    if not ours(loss) or getattr(loss, "__closure__", None):
        return False
    parts = [*model.modules(), *(loss.modules() if isinstance(loss, nn.Module) else ())]
    return all(
        ours(part)
        and not (part._forward_hooks or part._forward_pre_hooks)
        and all(ours(each) for each in vars(part).values() if callable(each))
        for part in parts
    )


def _only(batch: Any, at: int) -> Any:
    return pytree.tree_map_only(Tensor, lambda values: values[at : at + 1].clone(), batch)


def _same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    scale = float(one.nan_to_num(0.0, 0.0, 0.0).abs().max()) if one.numel() else 0.0
    return bool(torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True))


def _outputs(
    model: nn.Module, loss: Callable[..., Any], x: Any, target: Any
) -> tuple[list[tuple[str, Tensor]], Tensor]:
    """What every module gives that has the records first, by order of their ends; the losses."""
    seen: list[tuple[str, Tensor]] = []
    hooks = []
    rows = len(pytree.tree_leaves(x)[0])
    # What a call counts or iterates is the same for the next one.
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for name, module in model.named_modules():
        where = f"layer {name or 'model'} ({type(module).__name__})"

        def note(module: nn.Module, _: Any, output: Any, where: str = where) -> None:
            output = getattr(output, "logits", output)
            of_records = isinstance(output, Tensor) and output.dim() and len(output) == rows
            if of_records and output.is_floating_point():
                seen.append((where, output.detach().clone()))

        hooks.append(module.register_forward_hook(note))
    try:
        losses = loss(called(model, x), target)
    finally:
        for hook in hooks:
            hook.remove()
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
    return seen, losses
