"""Forward and backward pass through a chain of layers without autograd.

A small network spends as long in autograd's bookkeeping as in its products. Where it is a sequence
of layers of the types below, the backward pass is their rules (`dpatlas.privacy.rules`) in reverse
order, and autograd differentiates the loss alone. A rule of a layer without trainable parameters
stores nothing and passes the output gradient on.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.privacy.convolution import Conv2d
from dpatlas.privacy.kept_state import HOOKS, hooks_of_all
from dpatlas.privacy.layers import GroupNorm, Linear
from dpatlas.privacy.losses import output_gradient
from dpatlas.privacy.probe import Loss
from dpatlas.privacy.rules import Rule

# Maps of at most this many positions are pooled by a product with a matrix: more multiplications
# than a loop over cells, and faster.
POOLED = 64


class Shape(Rule):
    """nn.Flatten and nn.Unflatten of what belongs to a record."""

    parameters = ()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """x in the new shape."""
        return (self.layer.forward(x),)

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """delta in x's shape."""
        return delta.reshape(x.shape)


class ReLU(Rule):
    """nn.ReLU, never in place."""

    parameters = ()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """max(x, 0), and once more for the backward pass."""
        output = torch.relu(x)
        return output, output

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """delta where the output is positive, else 0."""
        return torch.ops.aten.threshold_backward(delta, saved[0], 0)


class AvgPool2d(Rule):
    """nn.AvgPool2d; of small maps by a product with the matrix that maps positions to cells."""

    layer: nn.AvgPool2d
    parameters = ()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Means over cells, and the matrix (positions, cells) of a small map."""
        if math.prod(x.shape[2:]) > POOLED:
            return (F.avg_pool2d(x, *self._settings()),)
        cells = _cells(x.shape[2:], x.dtype, self._settings())
        matrix = cells.flatten(1)
        return (x.reshape(-1, len(matrix)) @ matrix).view(*x.shape[:2], *cells.shape[1:]), matrix

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Each position's share of the output gradients of its cells."""
        if saved:
            (matrix,) = saved
            return (delta.reshape(-1, matrix.shape[1]) @ matrix.T).view(x.shape)
        return torch.ops.aten.avg_pool2d_backward(delta.contiguous(), x, *self._settings())

    def _settings(self) -> tuple[Any, ...]:
        """The arguments of torch's functions, after the input."""
        layer = self.layer
        sizes = (
            (size, size) if isinstance(size, int) else tuple(size)
            for size in (layer.kernel_size, layer.stride, layer.padding)
        )
        return *sizes, layer.ceil_mode, layer.count_include_pad, layer.divisor_override


@functools.lru_cache(maxsize=8)
def _cells(size: torch.Size, dtype: torch.dtype, settings: tuple[Any, ...]) -> Tensor:
    """What each position of a map adds to the mean of every cell, (positions, *cells)."""
    positions = math.prod(size)
    one_each = torch.eye(positions, dtype=dtype, device="cpu").view(positions, *size)
    return F.avg_pool2d(one_each, *settings)


LINKS: Mapping[type[nn.Module], type[Rule]] = {
    nn.Conv2d: Conv2d,
    nn.Linear: Linear,
    nn.GroupNorm: GroupNorm,
    nn.ReLU: ReLU,
    nn.AvgPool2d: AvgPool2d,
    nn.Flatten: Shape,
    nn.Unflatten: Shape,
}


class Chain:
    """The layers of a network in the order of its forward pass, each with its rule."""

    def __init__(self, model: nn.Module, links: Sequence[Rule]):
        self.model, self.links = model, links
        self._modules = list(model.modules())
        # No layer before the first trainable one needs an output gradient.
        self._first = next(number for number, link in enumerate(links) if link.trainable)

    def holds(self, x: Tensor) -> bool:
        """Whether a pass of x through the network, as it is now, is one through the chain.

        It is not on a GPU, where the precision of products would reach the matrices of poolings,
        nor once a layer was replaced or got a hook.
        """
        modules = list(self.model.modules())
        return (
            x.device.type == "cpu"
            and len(modules) == len(self._modules)
            and all(one is other for one, other in zip(modules, self._modules, strict=True))
            and not any(map(_altered, modules))
            and not any(hooks_of_all())
        )

    def backward(self, loss: Loss, x: Tensor, labels: Tensor, views: int) -> None:
        """Both passes, after which the rules hold what per-record gradients follow from.

        x (rows, ...), labels (rows,): `views` rows a record, over which losses are averaged.
        """
        rows, passed = x, []
        for link in self.links:
            link.rows = len(rows)
            link.check_rows(x)
            output, *saved = link.forward(x)
            passed.append((x, saved))
            x = output
        delta = output_gradient(loss, rows, x, labels, views)
        if delta is None:
            return
        for number in range(len(self.links) - 1, self._first - 1, -1):
            link, (x, saved) = self.links[number], passed.pop()
            link.reached = True
            assert delta is not None
            delta = link.backward(delta, x, *saved, needs_x=number > self._first)


def chain_of(model: nn.Module, rules: Mapping[str, Rule]) -> Chain | None:
    """The chain of a network whose trainable layers have these rules; None if it is not a chain."""
    if any(rule.whole for rule in rules.values()):
        return None
    links, seen = [], set()
    for name, layer in _parts(model, ""):
        if not _fits(layer) or (id(layer) in seen and name in rules):
            return None
        seen.add(id(layer))
        links.append(rules[name] if name in rules else LINKS[type(layer)](name, layer))
    return Chain(model, links) if set(rules) <= {link.name for link in links} else None


def _parts(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """What a sequence of layers calls, by name in that order, or the module itself."""
    if type(module).forward is not nn.Sequential.forward:
        yield name, module
        return
    # `named_children` would leave out a layer's second use.
    for key, part in module._modules.items():
        assert part is not None
        yield from _parts(part, f"{name}.{key}" if name else key)


def _fits(layer: nn.Module) -> bool:
    """Whether a layer's rule does what the layer does: it keeps the records' dimension."""
    match layer:
        case nn.Flatten():
            return type(layer) in LINKS and (layer.start_dim, layer.end_dim) == (1, -1)
        case nn.Unflatten():
            return type(layer) in LINKS and layer.dim == 1
        case nn.Conv2d():
            # The rule's kinds of padding, which a frozen layer need not have.
            zeros = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
            return type(layer) in LINKS and zeros
    return type(layer) in LINKS


def _altered(module: nn.Module) -> bool:
    """Whether calling the module does more, or something else, than its class says."""
    return "forward" in vars(module) or any(getattr(module, hooks) for hooks in HOOKS)
