"""nn.MultiheadAttention as what it computes: linear layers around softmax attention."""

import math
from collections.abc import Iterable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.privacy.layers import Linear
from dpatlas.privacy.rules import Rule, Unsupported
from dpatlas.privacy.stand_in import records_first


class Attention(Rule):
    """nn.MultiheadAttention with every kind of mask, in either order of records and positions.

    The rules of its projections are those of linear layers whose weights are rows of the layer's:
    one for query, key and value where these are the same tensor, else one for each.
    """

    layer: nn.MultiheadAttention
    whole = True
    parameters = (
        *("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"),
        *("in_proj_bias", "out_proj.weight", "out_proj.bias"),
    )

    def __init__(self, name: str, layer: nn.Module, views: int = 1):
        super().__init__(name, layer, views)
        values = {key: _get(layer, key) for key in self.parameters}
        self.trainable = {
            key: value for key, value in values.items() if value is not None and value.requires_grad
        }
        stacked, width = self.layer.in_proj_weight is not None, self.layer.embed_dim
        everything = slice(None)
        self.projections = {"out": self._projection("out_proj.weight", "out_proj.bias", everything)}
        for number, part in enumerate("qkv"):
            rows = slice(number * width, (number + 1) * width)
            weight = "in_proj_weight" if stacked else f"{part}_proj_weight"
            self.projections[part] = self._projection(weight, "in_proj_bias", rows, stacked)
        if stacked:
            self.projections["qkv"] = self._projection("in_proj_weight", "in_proj_bias", everything)

    def _projection(self, weight: str, bias: str, rows: slice, stacked: bool = True) -> Linear:
        part = _Part(self.layer, weight, bias, rows if stacked else slice(None), rows)
        rule = Linear(f"{self.name}.{weight}", cast(nn.Module, part), self.views)
        rule.trainable = {
            name: self.trainable[key]
            for name, key in (("weight", weight), ("bias", bias))
            if key in self.trainable
        }
        return rule

    def __call__(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As the layer's `forward`; `is_causal` only says what `attn_mask` is."""
        self.called()
        layer = self.layer
        if layer.add_zero_attn or layer.bias_k is not None or query.dim() != 3:
            where = f"layer {self.name} (MultiheadAttention)"
            raise Unsupported(where, "add_zero_attn, add_bias_kv or no batch", "neither")
        same = query is key and key is value
        query, key, value = map(records_first, (query, key, value))
        if not layer.batch_first:
            query, key, value = (given.transpose(0, 1) for given in (query, key, value))
        for given in (query, key, value):
            self.check_rows(given)
        for projection in self.projections.values():
            projection.rows = self.rows
        if same and "qkv" in self.projections:
            parts = self.projections["qkv"](query).chunk(3, -1)
        else:
            parts = tuple(
                self.projections[part](given)
                for part, given in zip("qkv", (query, key, value), strict=True)
            )
        query, key, value = (
            part.unflatten(2, (layer.num_heads, -1)).transpose(1, 2) for part in parts
        )
        mask = _joined(attn_mask, key_padding_mask, query)
        weights = None
        if need_weights:
            scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
            weights = torch.softmax(scores if mask is None else scores + mask, -1)
            mixed = weights @ value
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, mask)
        output = self.projections["out"](mixed.transpose(1, 2).flatten(2))
        return output if layer.batch_first else output.transpose(0, 1), weights

    def is_reached(self) -> bool:
        """Whether the last pass computed a gradient of every projection."""
        used = list(self._used())
        return bool(used) and all(projection.reached for projection in used)

    def norms2(self, small: float = 0.0) -> Tensor:
        """The sum over projections."""
        return cast(Tensor, sum(projection.norms2(small) for projection in self._trained()))

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """As `Rule.weighted`, with the rows of a parameter joined."""
        rows: dict[str, list[Tensor]] = {}
        for projection in self._trained():
            part = cast(_Part, projection.layer)
            for key, gradient in projection.weighted(factors).items():
                rows.setdefault(part.keys[key], []).append(gradient)
        return {
            key: parts[0] if len(parts) == 1 else torch.cat(parts) for key, parts in rows.items()
        }

    def discard(self, bad: Tensor) -> None:
        """As `Rule.discard`."""
        for projection in self._used():
            projection.discard(bad)

    def reset(self) -> None:
        """Forget the last pass."""
        super().reset()
        for projection in self.projections.values():
            projection.reset()

    def _used(self) -> Iterable[Linear]:
        """The projections of the last pass: those of query, key and value in this order."""
        return (projection for projection in self.projections.values() if projection.calls)

    def _trained(self) -> Iterable[Linear]:
        return (projection for projection in self._used() if projection.trainable)


class _Part:
    """Rows of an attention's parameters, as the linear layer that a rule reads."""

    def __init__(self, layer: nn.Module, weight: str, bias: str, *rows: slice):
        self.layer, self.keys = layer, {"weight": weight, "bias": bias}
        self.rows = dict(zip(self.keys, rows, strict=True))

    @property
    def weight(self) -> Tensor | None:
        """(out, in)."""
        return self._rows("weight")

    @property
    def bias(self) -> Tensor | None:
        """(out,)."""
        return self._rows("bias")

    def _rows(self, name: str) -> Tensor | None:
        value = _get(self.layer, self.keys[name])
        return None if value is None else value[self.rows[name]]


def _get(layer: nn.Module, key: str) -> Tensor | None:
    """A parameter by its dotted name."""
    *path, last = key.split(".")
    for name in path:
        layer = getattr(layer, name)
    return getattr(layer, last)


def _joined(mask: Tensor | None, padding: Tensor | None, query: Tensor) -> Tensor | None:
    """What is added to the scores (records, heads, queries, keys); None for no mask.

    mask: (queries, keys) or (records * heads, queries, keys); padding: (records, keys); both either
    true where attention is not allowed or added to the scores.
    """
    total: Tensor | None = None
    records, heads = query.shape[:2]
    for given in (mask, padding):
        if given is None:
            continue
        added = given
        if given.dtype == torch.bool:
            added = query.new_zeros(given.shape).masked_fill_(given, -math.inf)
        if given is padding:
            added = added[:, None, None]
        elif given.dim() == 3:
            added = added.view(records, heads, *given.shape[1:])
        total = added if total is None else total + added
    return total
