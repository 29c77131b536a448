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

import math
from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.privacy.clipping import SUM_BLOCK
from dpatlas.privacy.stand_in import records_first

# Rows longer than SHORT_ROW are squared and added up in blocks of NORM_BLOCK numbers.
NORM_BLOCK, SHORT_ROW = 256, 1024
# The longest input, as a share of the inverse of the least normal number: 8.5e29 in float32.
LONGEST = 1e-8

# What every layer with a rule depends on, so that autograd calls its `backward`: the only tensor by
# which a pass differentiates the losses.
ANCHOR = torch.zeros(0, requires_grad=True, device="cpu")


class Unsupported(InputError):
    """What the rules cannot do although it need not let records meet."""


class Ambiguous(Exception):
    """A tensor that may belong to the records, or be the same for all: their number decides."""


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
    """How a type of layer gives every record's gradient; a subclass is the rule of one's own layer.

    A layer is called once in a pass, with one tensor x whose first dimension is the rows: a record
    is `views` consecutive ones. A subclass names the layer's parameters in `parameters` and defines

    - `forward(x)`: the output, as a tuple that may hold further tensors for `backward`;
    - `backward(delta, x, *saved, needs_x)`: with delta the gradient of the loss with respect to the
      output, stores in `record_gradients[name]` the gradient of every record, (records, *shape),
      for each name in `trainable`, and returns the gradient with respect to x if `needs_x`.

    Neither runs under autograd. `value(name)` is a parameter without autograd; `summed` adds up
    what belongs to one record. `Rule.register(type)` makes the subclass the rule of a type of
    layers. Before the first noisy sum the probe compares its gradients with autograd's, and refuses
    the network if they differ. A rule that does not store gradients overrides `norms2`, `weighted`
    and `discard` as well.
    """

    parameters: ClassVar[tuple[str, ...]] = ("weight", "bias")
    # Whether the rule is also that of every layer inside its own.
    whole: ClassVar[bool] = False
    # The rule of every type of layer.
    of_types: ClassVar[dict[type[nn.Module], type["Rule"]]] = {}

    @classmethod
    def register(cls, kind: type[nn.Module]) -> None:
        """Make this the rule of layers of type `kind`, and of subclasses with its forward.

        InputError for what is not a class of modules.
        """
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise InputError(f"layer type of {cls.__name__}", kind, "a subclass of nn.Module")
        Rule.of_types[kind] = cls

    def __init__(self, name: str, layer: nn.Module, views: int = 1):
        self.name, self.layer, self.views = name, layer, views
        values = {key: getattr(layer, key, None) for key in self.parameters}
        self.trainable = {
            key: value
            for key, value in values.items()
            if isinstance(value, Tensor) and value.requires_grad
        }
        self.calls = 0
        # Whether the last pass computed a gradient here.
        self.reached = False
        # Rows of the current pass; None allows any number.
        self.rows: int | None = None
        self.record_gradients: dict[str, Tensor] = {}

    def install(self) -> None:
        """Put the rule in the place of the layer's `forward`."""
        self.layer_forward = vars(self.layer).get("forward")
        self.layer.forward = self

    def remove(self) -> None:
        """Undo `install`."""
        del self.layer.forward
        if self.layer_forward is not None:
            self.layer.forward = self.layer_forward

    def __call__(self, x: Tensor) -> Tensor:
        """The output, in place of the layer's `forward`."""
        self.called()
        x = records_first(x)
        self.check_rows(x)
        return Watched.apply(x, ANCHOR, self)

    def called(self) -> None:
        """Count a call; InputError for a second one in a pass."""
        self.calls += 1
        if self.calls > 1:
            raise Unsupported(
                f"layer {self.name}", "used more than once in a pass", "a layer used once"
            )

    def is_reached(self) -> bool:
        """Whether the last pass computed a gradient of every trainable parameter."""
        return self.reached

    def check_rows(self, x: Tensor) -> None:
        """InputError for an input whose first dimension is not the records of the pass."""
        if self.rows is not None and (x.dim() == 0 or len(x) != self.rows):
            raise Unsupported(
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

    def summed(self, rows: Tensor, features: int) -> Tensor:
        """Sums over a record's views and positions: (rows, ..., *shape) to (records, *shape).

        `features`: the number of dimensions of `shape`, the last ones of `rows`.
        """
        shape = rows.shape[rows.dim() - features :]
        return rows.reshape(len(rows) // self.views, -1, *shape).sum(1)

    def norms2(self, small: float = 0.0) -> Tensor:
        """Upper bounds on ||g_i||^2 over the layer's trainable parameters, float64 (records,).

        `small`: squared norms up to it are not clipped. A bound exceeds the squared norm by a small
        share of the larger of the norm and `small`.
        """
        return cast(Tensor, sum(map(rows_norm2, self.record_gradients.values())))

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        """sum_i c_i g_i by parameter, from `factors` c of shape (records,)."""
        return {
            key: in_blocks(torch.matmul, 1, factors, gradients.reshape(len(gradients), -1)).view(
                gradients.shape[1:]
            )
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
    which has a rounding error of at most gamma_(NORM_BLOCK + 4) for any order of summation, and
    loses at most NORM_BLOCK times the least normal number where squares underflow.
    """
    rows = gradients.reshape(len(gradients), -1)
    if rows.shape[1] <= SHORT_ROW:
        return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square_()
    whole = rows.shape[1] // NORM_BLOCK * NORM_BLOCK
    blocks = torch.linalg.vector_norm(rows[:, :whole].unflatten(1, (-1, NORM_BLOCK)), dim=2)
    rest = torch.linalg.vector_norm(rows[:, whole:], dim=1, dtype=torch.float64)
    underflow = NORM_BLOCK * torch.finfo(rows.dtype).tiny
    total = blocks.double().square_().add_(underflow).sum(1).add_(rest.square_())
    return total.mul_(1 + rounding(NORM_BLOCK + 4, rows.dtype))


def inputs_norms2(inputs: Tensor) -> Tensor:
    """`rows_norm2` of a linear layer's inputs a; infinite where they are beyond `LONGEST`.

    A clipped gradient c delta a^T has norm C, so that c delta is about C / |a|. Below the least
    normal number each of its entries is rounded by up to 2^-150, which the product multiplies by
    |a|: by C itself for the longest inputs and C = 1e-7.
    """
    norms2 = rows_norm2(inputs)
    longest = LONGEST / torch.finfo(inputs.dtype).tiny
    return norms2.masked_fill_(norms2.sqrt() > longest, math.inf)


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
