"""Operations of a record's graph that read parameters, as they are computed for many records.

Each has its own backward pass: it gives the gradient of its input, and keeps what per-record
gradients of its parameters follow from, where plain autograd would add these up over records.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from dpatlas.privacy.convolution import Convolution, Shape
from dpatlas.privacy.factors import Factored
from dpatlas.privacy.matrix import Matrix, Stored, Table

aten = torch.ops.aten
Tensors = Sequence[Tensor]


class Operation:
    """One operation, at a node of a record's graph.

    places: of its inputs among the node's arguments; the others are the same for all records.
    parameters: for weight and bias, the place of each among the arguments.
    `forward` gives the output, and what `backward` needs beside the inputs, each (records, *its
    shape in the record's graph). `backward` gives the gradients of the inputs and sets `kept`, the
    tensors of which `gradients` makes the per-record gradients.
    """

    places: tuple[int, ...] = (0,)
    parameters: Mapping[str, int] = MappingProxyType({})

    def __init__(self, node: Node):
        self.node = node
        self.kept: list[Tensor] = []
        # Of these, by "weight" and "bias", gradients are wanted.
        self.wanted: tuple[str, ...] = ()

    @property
    def others(self) -> list[Any]:
        """The node's arguments without its inputs."""
        return [each for at, each in enumerate(self.node.args) if at not in self.places]

    def forward(self, x: Any, *others: Any) -> tuple[Tensor, ...]:
        """The output, and more for `backward`; x: the input, or a tuple of several."""
        raise NotImplementedError

    def backward(self, delta: Tensor, x: Any, saved: Tensors, needs_x: bool, *others: Any) -> Any:
        """The gradient of x, from that of the output; None where it is not needed."""
        raise NotImplementedError

    def gradients(self, kept: Tensors, units: int, weight: Tensor | None) -> dict[str, Factored]:
        """Gradients of weight and bias as wanted, by unit; each unit is as many rows as another.

        Here of an operation that keeps those of every row, (records * rows, *shape).
        """
        roles = (role for role in ("weight", "bias") if role in self.wanted)
        return {
            role: Stored(each.view(units, -1, *each.shape[1:]).sum(1))
            for role, each in zip(roles, kept, strict=True)
        }

    def as_argument(self, gradient: Tensor) -> Tensor:
        """A gradient of the weight in the shape that the operation has it in."""
        return gradient


class Product(Operation):
    """x (positions, in) times a matrix (in, out): aten.mm, addmm, and bmm of one matrix."""

    def __init__(self, node: Node):
        super().__init__(node)
        self.adds = node.target is aten.addmm.default
        self.places = (1,) if self.adds else (0,)
        self.parameters = {"weight": 2, "bias": 0} if self.adds else {"weight": 1}

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """x W, plus the bias."""
        rows, matrix = x.reshape(-1, x.shape[-1]), others[-1].flatten(0, -2)
        out = torch.addmm(others[0], rows, matrix) if self.adds else rows @ matrix
        return (out.view(*x.shape[:-1], -1),)

    def backward(self, delta: Tensor, x: Any, saved: Tensors, needs_x: bool, *others: Any) -> Any:
        """delta W^T; keeps both factors."""
        self.kept = ([x] if "weight" in self.wanted else []) + [delta]
        if not needs_x:
            return None
        return (delta.reshape(-1, delta.shape[-1]) @ others[-1].flatten(0, -2).t()).view(x.shape)

    def gradients(self, kept: Tensors, units: int, weight: Tensor | None) -> dict[str, Factored]:
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
        """Of (out, in) as the matrix."""
        gradient = gradient.t()
        return gradient.unsqueeze(0) if self.node.target is aten.bmm.default else gradient


class Convolve(Operation):
    """aten.convolution of x (rows, in, ...), in any number of dimensions."""

    parameters = MappingProxyType({"weight": 1, "bias": 2})

    def __init__(self, node: Node):
        super().__init__(node)
        values: tuple[Any, ...] = node.args
        lists: Any = (tuple(each) if isinstance(each, list) else each for each in values[3:9])
        self.shape = Shape(*lists)
        self.kernel_dims = len(values[1].meta["shape"])

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """The convolution."""
        out = torch.convolution(x.flatten(0, 1), *others)
        return (out.unflatten(0, x.shape[:2]),)

    def backward(self, delta: Tensor, x: Any, saved: Tensors, needs_x: bool, *others: Any) -> Any:
        """The transposed convolution of delta; keeps both."""
        images, delta = x.flatten(0, 1), delta.flatten(0, 1)
        self.kept = ([images] if "weight" in self.wanted else []) + [delta]
        if not needs_x:
            return None
        return self.shape.gradients(delta, images, others[0], "input").view(x.shape)

    def gradients(self, kept: Tensors, units: int, weight: Tensor | None) -> dict[str, Factored]:
        """Of the kernel, and sums over positions."""
        delta, found = kept[-1], dict[str, Factored]()
        if "weight" in self.wanted and weight is not None:
            kernel, image, high, shape = weight, kept[0], delta, self.shape
            if image.dim() == 3 and not shape.transposed:
                # Maps of height one.
                kernel, image, high = (each.unsqueeze(2) for each in (kernel, image, high))
                shape = shape.of_height_one()
            found["weight"] = Convolution(kernel, shape, image, high, len(delta) // units)
        if "bias" in self.wanted:
            sums = delta.flatten(2).sum(2)
            found["bias"] = Stored(sums.view(units, -1, sums.shape[1]).sum(1))
        return found

    def as_argument(self, gradient: Tensor) -> Tensor:
        """Without the height of one."""
        return gradient.squeeze(2) if gradient.dim() > self.kernel_dims == 3 else gradient


class LookUp(Operation):
    """aten.embedding: rows of a table at a record's indices."""

    places = (1,)
    parameters = MappingProxyType({"weight": 0})

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """The rows."""
        return (torch.embedding(others[0], x),)

    def backward(self, delta: Tensor, x: Any, saved: Tensors, needs_x: bool, *others: Any) -> Any:
        """Keeps indices and delta."""
        self.kept = [x.long().contiguous(), delta]
        return None

    def gradients(self, kept: Tensors, units: int, weight: Tensor | None) -> dict[str, Factored]:
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

    parameters = MappingProxyType({"weight": 1, "bias": 2})

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """Normalised x, and the mean and 1/std of each group."""
        weight, bias, _, channels, size, groups, eps = others
        flat = x.flatten(0, 1).contiguous()
        out, mean, inverse = torch.native_group_norm(
            flat, weight, bias, len(flat), channels, size, groups, eps
        )
        return out.unflatten(0, x.shape[:2]), mean, inverse

    def backward(self, delta: Tensor, x: Any, saved: Tensors, needs_x: bool, *others: Any) -> Any:
        """The gradient of x; keeps those of weight and bias, (records * rows, channels)."""
        weight, _, _, channels, size, groups, _ = others
        flat, delta = x.flatten(0, 1).contiguous(), delta.flatten(0, 1).contiguous()
        count, back = len(flat), aten.native_group_norm_backward
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


class LayerNorm(Operation):
    """aten.native_layer_norm over the last dimensions."""

    parameters = MappingProxyType({"weight": 2, "bias": 3})

    def forward(self, x: Tensor, *others: Any) -> tuple[Tensor, ...]:
        """Normalised x, and the mean and 1/std of each row."""
        return torch.native_layer_norm(x, *others)

    def backward(self, delta: Tensor, x: Any, saved: Tensors, needs_x: bool, *others: Any) -> Any:
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
        delta, x, only_x = delta.contiguous(), x.contiguous(), [True, False, False]
        back = aten.native_layer_norm_backward
        return back(delta, x, list(shape), *saved, weight, bias, only_x)[0]


class FusedAttention(Operation):
    """Softmax attention of a record's queries, keys, values, by torch's fused operation of a CPU.

    Arguments: query, key, value (rows, heads, positions, features), dropout, causal; by name the
    scale, and a mask that is added to the scores and depends on no parameter.
    """

    places = (0, 1, 2)

    def forward(self, x: Any, *others: Any) -> tuple[Tensor, ...]:
        """The attended values; for `backward` the logarithms of the sums, and those values."""
        queries, keys, values = (each.flatten(0, 1) for each in x[:3])
        out, sums = aten._scaled_dot_product_flash_attention_for_cpu(
            queries, keys, values, *others, **self._named(x)
        )
        return out.unflatten(0, x[0].shape[:2]), sums, out

    def backward(self, delta: Tensor, x: Any, saved: Tensors, needs_x: bool, *others: Any) -> Any:
        """Gradients of query, key and value."""
        rows = [each.flatten(0, 1) for each in x[:3]]
        sums, out = saved
        found = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            delta.flatten(0, 1), *rows, out, sums, *(others or (0.0, False)), **self._named(x)
        )
        grads = [each.unflatten(0, delta.shape[:2]) for each in found]
        return [*grads, *[None] * (len(x) - 3)]

    def _named(self, x: Any) -> dict[str, Any]:
        mask = None
        if len(x) > 3:
            mask = x[3] if x[3].dim() == 5 else x[3][:, None, None]
            mask = mask.expand(-1, x[0].shape[1], -1, -1, -1).flatten(0, 1)
        return {"attn_mask": mask, "scale": self.node.kwargs.get("scale")}


OPERATIONS: dict[Any, Callable[[Node], Operation]] = {
    aten.mm.default: Product,
    aten.addmm.default: Product,
    aten.bmm.default: Product,
    aten.convolution.default: Convolve,
    aten.embedding.default: LookUp,
    aten.native_group_norm.default: GroupNorm,
    aten.native_layer_norm.default: LayerNorm,
    aten._scaled_dot_product_flash_attention_for_cpu.default: FusedAttention,
}


def operation_of(node: Node) -> Operation | None:
    """The operation at a node, if it has one that fits."""
    make = OPERATIONS.get(node.target)
    if make is FusedAttention:
        return make(node)
    if make is None or node.kwargs:
        return None
    if node.target in (aten.native_group_norm.default, aten.native_layer_norm.default):
        # Mean and 1/std have no gradient here; without a weight there is nothing to keep.
        read = {user.args[1] for user in node.users}
        operation = make(node)
        with_weight = node.args[operation.parameters["weight"]] is not None
        return operation if read <= {0} and with_weight else None
    if node.target is aten.bmm.default and node.args[1].meta["shape"][0] != 1:  # type: ignore[union-attr]
        return None
    if node.target is aten.addmm.default:
        # What is added is a bias, not a number for each position.
        bias = len(node.args) == 3 and len(node.args[0].meta["shape"]) == 1  # type: ignore[union-attr]
        return make(node) if bias else None
    return make(node)


class Watched(torch.autograd.Function):
    """An operation under vmap: all records at once, by `_OnBatch`."""

    @staticmethod
    def forward(anchor: Tensor, operation: Operation, inputs: int, *values: Any) -> Tensor:
        """Never called: `anchor` is always a batch."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept here."""

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, anchor: Tensor, operation: Operation, inputs: int, *values: Any
    ) -> tuple[Tensor, int]:
        """The outputs of all records. values: as many inputs, then the others."""
        x = [
            each.expand(info.batch_size, *each.shape) if dim is None else each.movedim(dim, 0)
            for each, dim in zip(values[:inputs], in_dims[3:], strict=False)
        ]
        return _OnBatch.apply(anchor, operation, inputs, *x, *values[inputs:]), 0


class _OnBatch(torch.autograd.Function):
    """An operation on all records; its backward pass keeps what belongs to each."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, operation: Operation, inputs: int, *values: Any
    ) -> Tensor:
        """The output; because of `anchor` autograd calls `backward` even if x is data."""
        x, others = values[:inputs], values[inputs:]
        output, *saved = operation.forward(x if inputs > 1 else x[0], *others)
        ctx.save_for_backward(*x, *saved)
        ctx.operation, ctx.inputs, ctx.others = operation, inputs, others
        return output

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> Any:
        """The gradients with respect to the inputs, where they are needed."""
        operation, inputs, others = ctx.operation, ctx.inputs, ctx.others
        x, saved = ctx.saved_tensors[:inputs], ctx.saved_tensors[inputs:]
        needed = any(ctx.needs_input_grad[3 : 3 + inputs])
        below = operation.backward(delta, x if inputs > 1 else x[0], saved, needed, *others)
        grads = below if inputs > 1 else [below]
        return None, None, None, *grads, *(None for _ in others)
