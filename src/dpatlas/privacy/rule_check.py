"""The rules are checked, not trusted: sums of a batch's graph against autograd, record by record.

On made-up numbers of the traced shapes, given to the graphs and not to the user's code: weighted
sums equal those of autograd through one record's graph, bounds on norms hold, and no record's part
changes when the other record does.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.seeds import generator
from dpatlas.errors import InputError
from dpatlas.privacy.batch import BatchGraph

RECORDS, KEY = 2, 0x72756C65
# Of the largest entry of a gradient, by which both ways to it may differ in float32 and bfloat16.
TOLERANCE, IN_BFLOAT16 = 2e-3, 0.1
# Whole numbers of a made-up record: most networks take these as classes, words and codes.
WHOLE = ((0, 2), (1, 2), (1, 3))


def check_rules(graph: BatchGraph, low: bool) -> None:
    """InputError that names the parameter whose gradient is not that of autograd.

    low: whether passes are in bfloat16. Nothing is said where no made-up record is one that the
    network takes, with finite gradients.
    """
    record, draws = graph.record, generator(KEY)
    state = [_near(value, draws) for value in record.state()]
    low |= any(value.is_floating_point() and value.itemsize < 4 for value in state)
    # A logarithm or a root takes positive numbers alone.
    for span, positive in itertools.product(WHOLE, (False, True)):
        data = [
            [
                _made_up(shape, dtype, span, positive, draws, state[0])
                for shape, dtype in record.leaves
            ]
            + [torch.from_numpy(draws.random(each.shape)).to(state[0]) for each in record.draws]
            for _ in range(RECORDS)
        ]
        try:
            alone = [_by_autograd(graph, state, one) for one in data]
        except (IndexError, RuntimeError):
            # Such as a code that is no index.
            continue
        if not all(bool(each.isfinite().all()) for one in alone for each in one):
            continue
        return _compare(graph, state, data, alone, IN_BFLOAT16 if low else TOLERANCE)
    return None


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
            if not apart <= tolerance * scale + 1e-30 or not norm <= float(bounds[number]) * (
                1 + tolerance
            ):
                found = f"a gradient by rules that differs from autograd's by {apart:.2g}"
                allowed = f"the same to {tolerance:g} of {scale:.2g}; please report this network"
                raise InputError(f"parameter {name}", found, allowed)


def _by_autograd(
    graph: BatchGraph, state: Sequence[Tensor], data: Sequence[Tensor]
) -> list[Tensor]:
    """The gradients of one record, by parameter."""
    names = list(graph.record.parameters)
    leaves = [value.detach().clone() for value in state]
    wanted = [leaves[names.index(name)].requires_grad_() for name in graph.trained]
    with torch.enable_grad():
        loss = graph.record.loss.forward(*leaves, *data)
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
    pairs = zip(wanted, found, strict=True)
    return [torch.zeros_like(value) if each is None else each.float() for value, each in pairs]


def _near(value: Tensor, draws: np.random.Generator) -> Tensor:
    """A value moved a little, so that no gradient vanishes because a weight is zero."""
    if not value.is_floating_point() or not value.numel():
        return value
    moved = torch.from_numpy(draws.standard_normal(value.shape)).to(value)
    return value + 0.01 * moved


def _made_up(
    shape: Sequence[int],
    dtype: torch.dtype,
    span: tuple[int, int],
    positive: bool,
    draws: np.random.Generator,
    like: Tensor,
) -> Tensor:
    if dtype.is_floating_point:
        drawn = draws.standard_normal(shape)
        numbers = torch.from_numpy(np.abs(drawn) + 0.1 if positive else drawn)
    else:
        numbers = torch.from_numpy(draws.integers(*span, shape))
    return numbers.to(device=like.device, dtype=dtype)
