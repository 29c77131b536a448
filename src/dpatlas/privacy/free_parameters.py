"""Parameters that a module uses itself, by sums and products that broadcast over the records.

A class token, a position embedding, a factor for each channel (LayerScale): they belong to no layer
that has a rule, and every record gets a copy of its own instead (`dpatlas.privacy.stand_in`).
"""

from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.privacy.rules import ANCHOR, Rule
from dpatlas.privacy.stand_in import stand_in


class FreeParameters(Rule):
    """The parameters `keys` of a module; their gradients by record are those of their stand-ins."""

    def __init__(self, name: str, layer: nn.Module, keys: list[str], views: int = 1):
        super().__init__(name, layer, views)
        self.trainable = {key: getattr(layer, key) for key in keys}

    def install(self) -> None:
        """Hide the parameters behind attributes of their names."""
        # Whether a module is called does not show whether it uses its parameters.
        self.calls = 1
        for key in self.trainable:
            copies = _Copies.apply(ANCHOR, self, key)
            vars(self.layer)[key] = stand_in(copies)

    def remove(self) -> None:
        """Undo `install`."""
        for key in self.trainable:
            vars(self.layer).pop(key, None)

    def is_reached(self) -> bool:
        """Whether the last pass computed a gradient of every parameter."""
        return set(self.trainable) <= set(self.record_gradients)


class _Copies(torch.autograd.Function):
    """A parameter's value for every row, (rows, *shape)."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, rule: FreeParameters, key: str) -> Tensor:
        """The value, without a copy of its numbers."""
        ctx.rule, ctx.key = rule, key
        value = rule.value(key)
        assert rule.rows is not None
        return value.expand(rule.rows, *value.shape)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[None, None, None]:
        """Stores delta, summed over views."""
        ctx.rule.record_gradients[ctx.key] = ctx.rule.summed(delta, delta.dim() - 1)
        return None, None, None
