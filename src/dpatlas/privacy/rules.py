"""Interface of the rules by which one backward pass gives every record's gradient norm.

A rule stores, for each layer that the engine watches, either the records' gradients or their two
factors, the input `a` and the output gradient `delta`. From these it computes upper bounds on
squared norms per record and, once the clip factors are known, the weighted sum of gradients:

    g_i = dL_i / dW,     ||g_i||^2,     sum_i c_i g_i.

A bound holds for what the record adds to the computed sum, rounding included: for stored gradients
their own norm, for factors the norm of their rounded product (`dpatlas.privacy.factors`).

Records are the first dimension of every tensor. With `views` > 1 a record has that many consecutive
rows, and its gradient is the sum over them.
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.privacy.clipping import SUM_BLOCK

# Rows longer than SHORT_ROW are squared and added up in blocks of NORM_BLOCK numbers.
NORM_BLOCK, SHORT_ROW = 256, 1024


class Watched(torch.autograd.Function):
    """A layer whose backward pass computes input gradients only; its rule gets the factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, rule: "Rule") -> Tensor:
        """The layer's output; because of `anchor` autograd calls `backward` even if x is data."""
        output, *saved = rule.forward(x)
        ctx.save_for_backward(x, *saved)
        ctx.rule = rule
        return output

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, None, None]:
        """The gradient with respect to x, where it is needed."""
        ctx.rule.reached = True
        needed = ctx.needs_input_grad[0]
        return ctx.rule.backward(delta, *ctx.saved_tensors, needs_x=needed), None, None


class Rule:
    """One watched layer; subclasses define how gradients follow from the factors.

    After the backward pass, `record_gradients` maps each trainable parameter to its per-record
    gradients (records, *shape); a subclass that stores factors instead overrides `norms2` and
    `weighted`.
    """

    parameters: ClassVar[tuple[str, ...]] = ("weight", "bias")

    def __init__(self, name: str, layer: nn.Module, views: int = 1):
        self.name, self.layer, self.views = name, layer, views
        values = {key: getattr(layer, key, None) for key in self.parameters}
        self.trainable = {
            key: value for key, value in values.items() if value is not None and value.requires_grad
        }
        self.anchor = torch.zeros(0, requires_grad=True)
        self.calls = 0
        # Whether the last pass computed a gradient here.
        self.reached = False
        # Rows of the current pass; None allows any number.
        self.rows: int | None = None
        self.record_gradients: dict[str, Tensor] = {}

    def __call__(self, x: Tensor) -> Tensor:
        """The output, in place of the layer's `forward`."""
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
        self.record_gradients = {}

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The output, and tensors that `backward` needs besides x."""
        raise NotImplementedError

    def backward(self, delta: Tensor, x: Tensor, *saved: Tensor, needs_x: bool) -> Tensor | None:
        """Fill `record_gradients`; return the gradient with respect to x if `needs_x`."""
        raise NotImplementedError

    def value(self, key: str) -> Tensor:
        """A parameter's values, detached from autograd."""
        return getattr(self.layer, key).detach()

    def value_if_any(self, key: str) -> Tensor | None:
        """As `value`; None if the layer has no such parameter."""
        return None if getattr(self.layer, key) is None else self.value(key)

    def norms2(self, small: float = 0.0) -> Tensor:
        """Upper bounds on ||g_i||^2 over the layer's trainable parameters, float64 (records,).

        `small`: squared norms up to it are not clipped. A bound exceeds the squared norm by a small
        share of the larger of the norm and `small`.
        """
        return cast(Tensor, sum(map(rows_norm2, self.record_gradients.values())))

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """sum_i c_i g_i by parameter, from `factors` c of shape (records,)."""
        return {
            key: in_blocks(torch.matmul, 1, factors, gradients.flatten(1)).view(gradients.shape[1:])
            for key, gradients in self.record_gradients.items()
        }

    def discard(self, bad: Tensor) -> None:
        """Zero the gradients of the records in the mask `bad`: 0 times infinity would be NaN."""
        for gradients in self.record_gradients.values():
            gradients.masked_fill_(bad.view(-1, *[1] * (gradients.dim() - 1)), 0)


def rounding(terms: int, dtype: torch.dtype) -> float:
    """n u / (1 - 2 n u), the error of n = `terms` roundings relative to computed magnitudes.

    gamma_n = n u / (1 - n u) bounds the error relative to the exact sum of magnitudes, which is at
    most the computed one over 1 - gamma_n (Higham 2002, Lemma 3.1).
    """
    error = terms * torch.finfo(dtype).eps / 2
    return error / (1 - 2 * error)


def rows_norm2(gradients: Tensor) -> Tensor:
    """Upper bounds on ||row||^2 of a (records, ...) tensor, float64, without a squared copy of it.

    Short rows are summed in float64. Long rows are sums of the squared norms of blocks, each of
    which has a rounding error of at most gamma_(NORM_BLOCK + 4) for any order of summation.
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
    """`product(*factors)`, a sum over records (the first dimension) and their positions.

    A sum of more than SUM_BLOCK terms is split into blocks of records, added up in float64.
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
