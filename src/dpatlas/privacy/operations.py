"""Operations of a record's graph that read parameters, as they are computed for many records.

Each has its own backward pass: it gives the gradient of its input, and keeps what per-record
gradients of its parameters follow from, where plain autograd would add these up over records.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from dpatlas.privacy.convolution import Convolution, Shape
from dpatlas.privacy.factors import Factored
from dpatlas.privacy.matrix import Matrix, Stored, Table

aten = torch.ops.aten


class Operation:
    """One operation, at a node of a record's graph.

    place: of its input among the node's arguments; the others are the same for all records.
    parameters: for weight and bias, the place of each among the arguments.
    `forward` gives the output, and what `backward` needs beside x. `backward` gives the gradient of
    x and sets `kept`, the tensors of which `gradients` makes the per-record gradients.
    """

    place = 0
    parameters: dict[str, int] = {}

    def __init__(self, node: Node):
        self.node = node
        self.kept: list[Tensor] = []
        # Of these, by "weight" and "bias", gradients are wanted.
        self.wanted: tuple[str, ...] = ()

    @property
    def others(self) -> list[Any]:
        """The node's arguments without its input."""
        return [each for at, each in enumerate(self.node.args) if at != self.place]

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """The output, and more for `backward`; x (records, *its shape in the record's graph)."""
        raise NotImplementedError

    def backward(
        self, delta: Tensor, x: Tensor, saved: Sequence[Tensor], needs_x: bool, *others: Any
    ) -> Tensor | None:
        """The gradient of x, from that of the output."""
        raise NotImplementedError

    def gradients(
        self, kept: Sequence[Tensor], units: int, weight: Tensor | None
    ) -> dict[str, Factored]:
        """Gradients of weight and bias as wanted, by unit; each unit is as many rows as another."""
        raise NotImplementedError


class Product(Operation):
    """x (positions, in) times a matrix (in, out): aten.mm, addmm, and bmm of one matrix."""

    def __init__(self, node: Node):
        super().__init__(node)
        self.place = 1 if node.target is aten.addmm.default else 0
        self.parameters = {"weight": self.place + 1} | ({"bias": 0} if self.place else {})

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """x W, plus the bias."""
        rows, matrix = x.reshape(-1, x.shape[-1]), others[-1].flatten(0, -2)
        out = torch.addmm(others[0], rows, matrix) if self.place else rows @ matrix
        return (out.view(*x.shape[:-1], -1),)

    def backward(
        self, delta: Tensor, x: Tensor, saved: Sequence[Tensor], needs_x: bool, *others: Any
    ) -> Tensor | None:
        """delta W^T; keeps both factors."""
        self.kept = ([x] if "weight" in self.wanted else []) + [delta]
        if not needs_x:
            return None
        return (delta.reshape(-1, delta.shape[-1]) @ others[-1].flatten(0, -2).t()).view(x.shape)

    def gradients(
        self, kept: Sequence[Tensor], units: int, weight: Tensor | None
    ) -> dict[str, Factored]:
        """Of a matrix (out, in), and sums over positions."""
        delta = kept[-1].reshape(units, -1, kept[-1].shape[-1])
        found: dict[str, Factored] = {}
        if "weight" in self.wanted and weight is not None:
            a = kept[0].reshape(units, -1, kept[0].shape[-1])
            found["weight"] = Matrix(weight.flatten(0, -2).t(), a, delta)
        if "bias" in self.wanted:
            found["bias"] = Stored(delta.sum(1))
        return found

    def as_argument(self, gradient: Tensor) -> Tensor:
        """A gradient (out, in) in the shape of the operation's matrix."""
        gradient = gradient.t()
        return gradient.unsqueeze(0) if self.node.target is aten.bmm.default else gradient


class Convolve(Operation):
    """aten.convolution of x (rows, in, ...), in any number of dimensions."""

    parameters = {"weight": 1, "bias": 2}

    def __init__(self, node: Node):
        super().__init__(node)
        stride, padding, dilation, transposed, output_padding, groups = node.args[3:9]
        flat = [tuple(each) for each in (stride, padding, dilation, output_padding)]  # type: ignore[arg-type]
        self.shape = Shape(*flat[:3], bool(transposed), flat[3], int(groups))  # type: ignore[call-overload]

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """The convolution."""
        out = torch.convolution(x.flatten(0, 1), *others)
        return (out.unflatten(0, x.shape[:2]),)

    def backward(
        self, delta: Tensor, x: Tensor, saved: Sequence[Tensor], needs_x: bool, *others: Any
    ) -> Tensor | None:
        """The transposed convolution of delta; keeps both."""
        images, delta = x.flatten(0, 1), delta.flatten(0, 1)
        self.kept = ([images] if "weight" in self.wanted else []) + [delta]
        if not needs_x:
            return None
        return self.shape.input_gradient(delta, images, others[0]).view(x.shape)

    def gradients(
        self, kept: Sequence[Tensor], units: int, weight: Tensor | None
    ) -> dict[str, Factored]:
        """Of the kernel, and sums over positions."""
        delta, found = kept[-1], dict[str, Factored]()
        if "weight" in self.wanted and weight is not None:
            image, rows = kept[0], len(delta) // units
            if image.dim() == 3 and not self.shape.transposed:
                # Maps of height one.
                wide = [each.unsqueeze(2) for each in (weight, image, delta)]
                found["weight"] = Convolution(wide[0], _of_height_one(self.shape), *wide[1:], rows)
            else:
                found["weight"] = Convolution(weight, self.shape, image, delta, rows)
        if "bias" in self.wanted:
            sums = delta.flatten(2).sum(2)
            found["bias"] = Stored(sums.view(units, -1, sums.shape[1]).sum(1))
        return found


def _of_height_one(shape: Shape) -> Shape:
    return Shape(
        (1, *shape.stride),
        (0, *shape.padding),
        (1, *shape.dilation),
        shape.transposed,
        (0, *shape.output_padding),
        shape.groups,
    )


class LookUp(Operation):
    """aten.embedding: rows of a table at a record's indices."""

    place = 1
    parameters = {"weight": 0}

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """The rows."""
        return (torch.embedding(others[0], x),)

    def backward(
        self, delta: Tensor, x: Tensor, saved: Sequence[Tensor], needs_x: bool, *others: Any
    ) -> Tensor | None:
        """Keeps indices and delta."""
        self.kept = [x.contiguous(), delta]
        return None

    def gradients(
        self, kept: Sequence[Tensor], units: int, weight: Tensor | None
    ) -> dict[str, Factored]:
        """Sums of delta over equal indices."""
        indices, delta = kept
        assert weight is not None
        padding = int(self.others[1]) if len(self.others) > 1 else -1
        return {"weight": Table(weight, indices.reshape(units, -1), delta, padding)}


class GroupNorm(Operation):
    """aten.native_group_norm, by torch's backward kernel with each record's channels as their own.

    The kernel sums the gradients of weight and bias over the batch. Called with one record of
    records x channels channels, it returns them per record at the same cost.
    """

    parameters = {"weight": 1, "bias": 2}

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """Normalised x, and the mean and 1/std of each group."""
        weight, bias, _, channels, size, groups, eps = others
        flat = x.flatten(0, 1).contiguous()
        out, mean, inverse = torch.native_group_norm(
            flat, weight, bias, len(flat), channels, size, groups, eps
        )
        return out.unflatten(0, x.shape[:2]), mean, inverse

    def backward(
        self, delta: Tensor, x: Tensor, saved: Sequence[Tensor], needs_x: bool, *others: Any
    ) -> Tensor | None:
        """The gradient of x; keeps those of weight and bias, (records * rows, channels)."""
        weight, _, _, channels, size, groups, _ = others
        flat, delta = x.flatten(0, 1).contiguous(), delta.flatten(0, 1).contiguous()
        count, back = len(flat), torch.ops.aten.native_group_norm_backward
        if not self.wanted:
            sizes = count, channels, size, groups
            below = back(delta, flat, *saved, weight, *sizes, [True, False, False])[0]
            return below.reshape(x.shape)
        below, *own = back(
            delta.view(1, count * channels, -1),
            flat.view(1, count * channels, -1),
            saved[0].view(1, -1),
            saved[1].view(1, -1),
            weight.repeat(count),
            1,
            count * channels,
            size,
            count * groups,
            [needs_x, True, True],
        )
        roles = zip(("weight", "bias"), own, strict=True)
        self.kept = [each.view(count, channels) for role, each in roles if role in self.wanted]
        return below.reshape(x.shape) if needs_x else None

    def gradients(
        self, kept: Sequence[Tensor], units: int, weight: Tensor | None
    ) -> dict[str, Factored]:
        """Summed over a unit's rows."""
        return {
            role: Stored(each.view(units, -1, each.shape[1]).sum(1))
            for role, each in zip(_in_order(self.wanted), kept, strict=True)
        }


class LayerNorm(Operation):
    """aten.native_layer_norm over the last dimensions."""

    parameters = {"weight": 2, "bias": 3}

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """Normalised x, and the mean and 1/std of each row."""
        return torch.native_layer_norm(x, *others)

    def backward(
        self, delta: Tensor, x: Tensor, saved: Sequence[Tensor], needs_x: bool, *others: Any
    ) -> Tensor | None:
        """The gradient of x; keeps sums over positions of delta x^ and of delta."""
        shape, weight, bias, _ = others
        positions = tuple(range(1, x.dim() - len(shape)))
        self.kept = []
        if "weight" in self.wanted:
            rows = ((x - saved[0]) * saved[1]).mul_(delta)
            self.kept.append(rows.sum(positions) if positions else rows)
        if "bias" in self.wanted:
            self.kept.append(delta.sum(positions) if positions else delta)
        if not needs_x:
            return None
        return torch.ops.aten.native_layer_norm_backward(
            delta.contiguous(), x.contiguous(), list(shape), *saved, weight, bias, [True, False, False]
        )[0]

    def gradients(
        self, kept: Sequence[Tensor], units: int, weight: Tensor | None
    ) -> dict[str, Factored]:
        """Summed over a unit's rows."""
        return {
            role: Stored(each.view(units, -1, *each.shape[1:]).sum(1))
            for role, each in zip(_in_order(self.wanted), kept, strict=True)
        }


def _in_order(roles: Sequence[str]) -> list[str]:
    return [role for role in ("weight", "bias") if role in roles]


OPERATIONS: dict[Any, Callable[[Node], Operation]] = {
    aten.mm.default: Product,
    aten.addmm.default: Product,
    aten.bmm.default: Product,
    aten.convolution.default: Convolve,
    aten.embedding.default: LookUp,
    aten.native_group_norm.default: GroupNorm,
    aten.native_layer_norm.default: LayerNorm,
}


def operation_of(node: Node) -> Operation | None:
    """The operation at a node, if it has one that fits."""
    make = OPERATIONS.get(node.target)
    if make is None or node.kwargs:
        return None
    if node.target in (aten.native_group_norm.default, aten.native_layer_norm.default):
        # Mean and 1/std have no gradient here; without a weight there is nothing to keep.
        read = {user.args[1] for user in node.users}
        operation = make(node)
        with_weight = node.args[operation.parameters["weight"]] is not None
        return operation if read <= {0} and with_weight else None
    if node.target is aten.embedding.default and len(node.args) > 3 and any(node.args[3:]):
        return None
    if node.target is aten.bmm.default and node.args[1].meta["shape"][0] != 1:  # type: ignore[union-attr]
        return None
    plain = node.target is not aten.addmm.default or len(node.args) == 3
    return make(node) if plain else None


class Watched(torch.autograd.Function):
    """An operation under vmap: all records at once, by `_OnBatch`."""

    @staticmethod
    def forward(anchor: Tensor, x: Tensor, operation: Operation, *others: Any) -> Tensor:
        """Never called: `anchor` is always a batch."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept here."""

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, anchor: Tensor, x: Tensor, operation: Operation, *others: Any
    ) -> tuple[Tensor, int]:
        """The outputs of all records."""
        if in_dims[1] is None:
            x = x.expand(info.batch_size, *x.shape)
        elif in_dims[1]:
            x = x.movedim(in_dims[1], 0)
        return _OnBatch.apply(anchor, x, operation, *others), 0


class _OnBatch(torch.autograd.Function):
    """An operation on all records; its backward pass keeps what belongs to each."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, x: Tensor, operation: Operation, *others: Any) -> Tensor:
        """The output; because of `anchor` autograd calls `backward` even if x is data."""
        output, *saved = operation.forward(x, *others)
        ctx.save_for_backward(x, *saved)
        ctx.operation, ctx.others = operation, others
        return output

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> Any:
        """The gradient with respect to x, where it is needed."""
        x, *saved = ctx.saved_tensors
        operation, others = ctx.operation, ctx.others
        below = operation.backward(delta, x, saved, ctx.needs_input_grad[1], *others)
        return None, below, None, *(None for _ in others)
