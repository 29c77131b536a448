"""What each layer type must tell, so that one backward pass gives every record's gradient norm.

A layer that the engine watches keeps what its records' gradients are made of: either the gradients
themselves or their two factors, the input `a` and the output gradient `delta`. From that it gives
upper bounds on squared norms per record and, once the clip factors are known, the weighted sum of
gradients:

    g_i = dL_i / dW,     ||g_i||^2,     sum_i c_i g_i.

A bound holds for what the record adds to the computed sum, whatever was rounded on the way: for
kept gradients these themselves, for factors their rounded product (`dpatlas.privacy.factors`).

Records are the first dimension of every tensor. With `views` > 1 a record owns that many
consecutive rows, and its gradient is the sum over them.
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.privacy.clipping import SUM_BLOCK

# Longer rows are squared and added up by blocks of that many numbers.
NORM_BLOCK, SHORT_ROW = 256, 1024


class Watched(torch.autograd.Function):
    """A layer whose backward pass gives input gradients only and shows its factors to the rule."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, rule: "Rule") -> Tensor:
        """The layer's output; `anchor` makes autograd come back here even if x is data."""
        output, *kept = rule.forward(x)
        ctx.save_for_backward(x, *kept)
        ctx.rule = rule
        return output

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, None, None]:
        """The gradient with respect to x, where it is needed."""
        ctx.rule.reached = True
        below = ctx.rule.backward(delta, *ctx.saved_tensors, wanted=ctx.needs_input_grad[0])
        return below, None, None


class Rule:
    """One watched layer. Subclasses say how their parameters' gradients follow from the factors.

    After the backward pass, `kept` maps each trainable parameter to its per-record gradients
    (records, *shape); a subclass that keeps factors instead overrides `norms2` and `weighted`.
    """

    parameters: ClassVar[tuple[str, ...]] = ("weight", "bias")

    def __init__(self, name: str, layer: nn.Module, views: int = 1):
        self.name, self.layer, self.views = name, layer, views
        own = {key: getattr(layer, key, None) for key in self.parameters}
        self.trainable = {
            key: value for key, value in own.items() if value is not None and value.requires_grad
        }
        self.anchor = torch.zeros(0, requires_grad=True)
        self.calls = 0
        # Whether a gradient came back in the last pass.
        self.reached = False
        # Of the pass that is running; None takes any number.
        self.rows: int | None = None
        self.kept: dict[str, Tensor] = {}

    def __call__(self, x: Tensor) -> Tensor:
        """What stands in for the layer's `forward`."""
        self.calls += 1
        if self.calls > 1:
            raise InputError(
                f"layer {self.name}", "used more than once in a pass", "a layer used once"
            )
        self.check_rows(x)
        return Watched.apply(x, self.anchor, self)

    def check_rows(self, x: Tensor) -> None:
        """InputError for an input whose first dimension is not the records of the pass."""
        if self.rows is not None and len(x) != self.rows:
            raise InputError(
                f"layer {self.name} ({type(self.layer).__name__})",
                f"an input of shape {tuple(x.shape)} for {self.rows} records",
                "records first, with whatever belongs to a record in its own row",
            )

    def reset(self) -> None:
        """Forget the last pass."""
        self.calls = 0
        self.reached = False
        self.kept = {}

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Output, and tensors to keep for `backward` beside x."""
        raise NotImplementedError

    def backward(self, delta: Tensor, x: Tensor, *kept: Tensor, wanted: bool) -> Tensor | None:
        """Fill `kept`; the gradient with respect to x if it is wanted."""
        raise NotImplementedError

    def value(self, key: str) -> Tensor:
        """A parameter's values, outside of autograd."""
        return getattr(self.layer, key).detach()

    def value_if_any(self, key: str) -> Tensor | None:
        """The same; None if the layer has no such parameter."""
        return None if getattr(self.layer, key) is None else self.value(key)

    def norms2(self, small: float = 0.0) -> Tensor:
        """Upper bounds on ||g_i||^2 over the layer's trainable parameters, float64 (records,).

        `small`: what a squared norm may be without being clipped; a bound is tight as a part of the
        larger of the two.
        """
        return cast(Tensor, sum(rows_norm2(gradients) for gradients in self.kept.values()))

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """sum_i c_i g_i by parameter, from `factors` c of shape (records,)."""
        return {
            key: in_blocks(torch.matmul, 1, factors, gradients.flatten(1)).view(gradients.shape[1:])
            for key, gradients in self.kept.items()
        }

    def discard(self, bad: Tensor) -> None:
        """Zero what is kept of the records in the mask `bad`: 0 times infinity would be NaN."""
        for gradients in self.kept.values():
            gradients.masked_fill_(bad.view(-1, *[1] * (gradients.dim() - 1)), 0)


def rounding(terms: int, dtype: torch.dtype) -> float:
    """n u / (1 - 2 n u): n = `terms` roundings, relative to computed magnitudes.

    gamma_n = n u / (1 - n u) bounds the error relative to the exact sum of magnitudes, which is at
    most the computed one over 1 - gamma_n (Higham 2002, Lemma 3.1).
    """
    error = terms * torch.finfo(dtype).eps / 2
    return error / (1 - 2 * error)


def rows_norm2(gradients: Tensor) -> Tensor:
    """Upper bounds on ||row||^2 of a (records, ...) tensor, float64; no squared copy of it is made.

    Short rows: in float64. Long ones: squares of blocks' norms, each of which the records' type
    rounds by at most gamma_(NORM_BLOCK + 4), whatever the order of summation.
    """
    rows = gradients.flatten(1)
    if rows.shape[1] <= SHORT_ROW:
        return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square_()
    whole = rows.shape[1] // NORM_BLOCK * NORM_BLOCK
    blocks = torch.linalg.vector_norm(rows[:, :whole].unflatten(1, (-1, NORM_BLOCK)), dim=2)
    rest = torch.linalg.vector_norm(rows[:, whole:], dim=1, dtype=torch.float64)
    total = blocks.double().square_().sum(1).add_(rest.square_())
    return total.mul_(1 + rounding(NORM_BLOCK + 4, rows.dtype))


def in_blocks(product: Callable[..., Tensor], positions: int, *factors: Tensor) -> Tensor:
    """`product(*factors)`, a sum over records (their first dimension) and their positions.

    Where it has more than SUM_BLOCK terms, blocks of records are added up in float64.
    """
    size = max(1, SUM_BLOCK // positions)
    if len(factors[0]) <= size:
        return product(*factors)
    blocks = zip(*(factor.split(size) for factor in factors), strict=True)
    parts = (product(*block) for block in blocks)
    first = next(parts)
    total = first.double()
    for part in parts:
        total += part
    return total.to(first.dtype)
