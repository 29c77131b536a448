"""The rules are checked, not trusted: sums of a batch's graph against autograd, record by record.

On made-up numbers of the traced shapes, given to the graphs and not to the user's code: weighted
sums equal those of autograd through one record's graph, bounds on norms hold, and no record's part
changes when the other record does.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.base.seeds import generator
from dpatlas.errors import InputError
from dpatlas.privacy.batch import BatchGraph
from dpatlas.privacy.trace import RecordGraph

RECORDS, KEY = 2, 0x72756C65
# Of the largest entry of a gradient, by which both ways to it may differ in float32 and bfloat16.
TOLERANCE, IN_BFLOAT16 = 2e-3, 0.1
# Of the largest entry of all gradients: one that is zero but for rounding, as that of the bias of
# attention's keys, has no digits in common.
ROUNDING = 1e-6
# Whole numbers of a made-up record: most networks take these as classes, words and codes.
WHOLE = ((0, 2), (1, 2), (1, 3))


def check_rules(graph: BatchGraph, record: RecordGraph, low: bool) -> None:
    """InputError that names the parameter whose gradient is not that of autograd.

    record: of which the graph was made; its parameters that are trained are moved a little first.
    low: whether products are in bfloat16 by autocast. Nothing is said where no made-up record is
    one that the network takes, with finite gradients.
    """
    draws, state = generator(KEY), record.state()
    low |= any(value.dtype in (torch.bfloat16, torch.float16) for value in state)
    # The others stay as they are: they may be many.
    names = [*graph.parameters, *graph.buffers]
    state = [
        _near(value, draws) if name in graph.trained else value
        for name, value in zip(names, state, strict=True)
    ]
    # A logarithm or a root takes positive numbers alone.
    for span, positive in itertools.product(WHOLE, (False, True)):
        data = [_made_up(graph, span, positive, draws, state[0]) for _ in range(RECORDS)]
        try:
            alone = [_by_autograd(graph, state, one) for one in data]
        except (IndexError, RuntimeError):
            # Such as a code that is no index.
            continue
        if not all(bool(torch.isfinite(each).all()) for one in alone for each in one):
            # Such as a length of 0, which a mean is divided by.
            continue
        try:
            return _compare(graph, state, data, alone, IN_BFLOAT16 if low else TOLERANCE)
        except InputError:
            # A network that magnifies rounding: the rules may be right all the same.
            if not _holds_in_float64(graph, record, state, data):
                raise
            return None
    return None


def _holds_in_float64(
    graph: BatchGraph, record: RecordGraph, state: Sequence[Tensor], data: list[list[Tensor]]
) -> bool:
    """Whether both ways agree in float64, by the graph of that, if there can be one."""
    wide = [_wide(each) for each in state]
    rows = [[_wide(each) for each in one] for one in data]
    leaves = tuple((v[0], torch.float64 if v[1].is_floating_point else v[1]) for v in record.leaves)
    kinds: dict[str, Any] = {
        "parameters": {name: _wide(each) for name, each in record.parameters.items()},
        "buffers": {name: _wide(each) for name, each in record.buffers.items()},
    }
    try:
        other = BatchGraph(replace(record, leaves=leaves, **kinds), graph.trained)
        _compare(other, wide, rows, [_by_autograd(other, wide, one) for one in rows], TOLERANCE)
    except (InputError, RuntimeError):
        return False
    return True


def _wide(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value


def _compare(
    graph: BatchGraph,
    state: Sequence[Tensor],
    data: list[list[Tensor]],
    alone: list[list[Tensor]],
    tolerance: float,
) -> None:
    batch = [torch.stack(each) for each in zip(*data, strict=True)]
    with torch.no_grad():
        gradients = graph.gradients(state, batch, RECORDS)
    largest = max(float(each.abs().max()) for one in alone for each in one if each.numel())
    rounding = largest * max(ROUNDING, tolerance / 10 if tolerance == IN_BFLOAT16 else 0.0)
    for at, (name, gradient) in enumerate(gradients.items()):
        expected = [one[at] for one in alone]
        if not gradient.like.numel():
            continue
        kind = torch.promote_types(gradient.like.dtype, torch.float32)
        bounds = gradient.norms2(0.0).sqrt()
        for number, one in enumerate(expected):
            only = torch.zeros(RECORDS, dtype=kind, device=one.device)
            only[number] = 1.0
            apart = float((gradient.weighted(only) - one).abs().max())
            scale = max(float(each.abs().max()) for each in expected)
            norm = float(torch.linalg.vector_norm(one.double()))
            above = norm - float(bounds[number]) * (1 + tolerance)
            fits = apart <= tolerance * scale + rounding + 1e-30
            if not fits or not above <= rounding * math.sqrt(one.numel()):
                found = f"a gradient by rules that differs from autograd's by {apart:.2g}"
                allowed = f"the same to {tolerance:g} of {scale:.2g}; please report this network"
                raise InputError(f"parameter {name}", found, allowed)


def _by_autograd(
    graph: BatchGraph, state: Sequence[Tensor], data: Sequence[Tensor]
) -> list[Tensor]:
    """The gradients of one record, by parameter."""
    names = graph.parameters
    leaves = [value.detach() for value in state]
    wanted = [leaves[names.index(name)].requires_grad_() for name in graph.trained]
    with torch.enable_grad():
        loss = graph.loss.forward(*leaves, *data)
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
    pairs = zip(wanted, found, strict=True)
    return [
        (torch.zeros_like(value) if each is None else each).to(
            torch.promote_types(value.dtype, torch.float32)
        )
        for value, each in pairs
    ]


def _near(value: Tensor, draws: np.random.Generator) -> Tensor:
    """A value moved a little, so that no gradient vanishes because a weight is zero."""
    if not value.is_floating_point() or not value.numel():
        return value
    moved = torch.from_numpy(draws.standard_normal(value.shape)).to(value)
    return value + 0.01 * moved


def _made_up(
    graph: BatchGraph, span: tuple[int, int], positive: bool, draws: np.random.Generator, on: Tensor
) -> list[Tensor]:
    """Leaves and draws of one record, on the device of a tensor; whole numbers are in the span."""
    record = []
    for shape, dtype in graph.leaves:
        if dtype.is_floating_point:
            drawn = draws.standard_normal(shape)
            numbers: np.ndarray = np.abs(drawn) + 0.1 if positive else drawn
        else:
            numbers = draws.integers(*span, shape)
        record.append(torch.from_numpy(numbers).to(device=on.device, dtype=dtype))
    return record + [torch.from_numpy(draws.random(each.shape)).to(on) for each in graph.draws]
