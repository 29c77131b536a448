"""One flat graph of what every record of a batch adds, made of the graph of one record.

`vmap` of a record's graph (`dpatlas.privacy.trace`) and one backward pass through it, written down
as operations on tensors with the records first: no operation of a record's graph can meet another
record, by the meaning of vmap. Of most parameters the graph keeps what the gradients of the records
follow from (`dpatlas.privacy.operations`); of others every record gets a copy of its own, whose
gradient is the record's. No user code runs here, so the graph can be made for as many phases and
batch sizes as are needed.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vjp, vmap
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx

from dpatlas.models.precision import exact
from dpatlas.privacy.factors import Factored
from dpatlas.privacy.matrix import Matrix, Stored
from dpatlas.privacy.operations import Convolve, Operation, Product, Watched, operation_of
from dpatlas.privacy.trace import RecordGraph, reached

aten = torch.ops.aten
# Operations through which a weight reaches its product with every number in one place.
_VIEWS = {
    *(aten.t.default, aten.transpose.int, aten.permute.default, aten.view.default),
    *(aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims),
    *(aten.alias.default, aten._to_copy.default, aten.clone.default),
}
# Operations that give parts of a weight, no number twice.
_PARTS = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}
# The numbers of records by which a graph is traced: what differs between both is a multiple.
SIZES = 3, 5


@dataclass(frozen=True)
class Use:
    """A parameter's way to one operation: its role there, and the views on the way."""

    operation: Operation
    role: str
    views: tuple[Node, ...] = ()

    def of(self, value: Tensor) -> Tensor:
        """The parameter as the operation has it, in its own type."""
        for node in self.views:
            if node.target is operator.getitem:
                value = value[node.args[1]]  # type: ignore[index]
            elif node.target is not aten._to_copy.default:
                value = node.target(value, *node.args[1:], **node.kwargs)  # type: ignore[operator]
        return value

    def back(self, gradient: Tensor, like: Tensor) -> Tensor:
        """A gradient of the operation's weight (out, in) or bias as one of the parameter `like`."""
        if self.role == "weight" and isinstance(self.operation, Product):
            gradient = self.operation.as_argument(gradient)
        elif isinstance(self.operation, Convolve) and self.role == "weight" and gradient.dim() > len(self.operation.node.args[1].meta["shape"]) == 3:  # type: ignore[union-attr]
            gradient = gradient.squeeze(2)
        views = [node for node in self.views if node.target is not aten._to_copy.default]
        if all(node.target is aten.t.default for node in views):
            return gradient.t() if len(views) % 2 else gradient
        _, pull = vjp(self.of, like)
        found: Tensor = pull(gradient.to(like.dtype))[0]
        return found

    def way(self) -> tuple[Any, ...]:
        """What tells the views from others."""
        return tuple((str(node.target), str(node.args[1:])) for node in self.views)

    def part(self) -> tuple[Node, Any] | None:
        """The operation that divides the parameter, and which of its parts arrives."""
        for before, node in zip(self.views, self.views[1:], strict=False):
            if node.target is operator.getitem and before.target in _PARTS:
                return before, node.args[1]
        return None


@dataclass
class Gradient:
    """The gradients of one parameter by unit, as the sum of what is orthogonal to each other."""

    like: Tensor
    parts: list[tuple[Use | None, Factored]]

    def norms2(self, small: float) -> Tensor:
        """As `Factored.norms2`."""
        total = self.parts[0][1].norms2(small)
        for _, part in self.parts[1:]:
            total = total + part.norms2(small)
        return total

    def weighted(self, factors: Tensor) -> Tensor:
        """sum_i c_i g_i in the parameter's shape."""
        total: Tensor | None = None
        for use, part in self.parts:
            each = part.weighted(factors)
            each = each.view(self.like.shape) if use is None else use.back(each, self.like)
            total = each if total is None else total + each
        assert total is not None
        return total

    def discard(self, bad: Tensor) -> None:
        """As `Factored.discard`."""
        for _, part in self.parts:
            part.discard(bad)


class BatchGraph:
    """What a batch's records add to the gradients of the parameters `trained`, by name.

    uses: of each parameter that operations watch. copied: the parameters of which each record has
    a copy.
    """

    def __init__(self, record: RecordGraph, trained: Sequence[str]):
        self.record, self.trained = record, list(trained)
        graph = record.loss.graph
        self.holders = graph.find_nodes(op="placeholder")
        count = len(record.parameters)
        self._own = dict(zip(self.holders, record.parameters, strict=False))
        self._data = self.holders[count + len(record.buffers) :]
        self.operations, self.uses, self.copied = self._plan(graph)
        self._layout: list[tuple[Any, int]] = []
        # By the number of records where torch computes an operation record by record.
        self._graphs: dict[int, GraphModule] = {}
        self._any = self._for_all_sizes()

    def _plan(self, graph: Graph) -> tuple[dict[Node, Operation], dict[str, list[Use]], list[str]]:
        """Operations to watch, the uses of parameters by them, and parameters to be copied."""
        node_of = {name: node for node, name in self._own.items()}
        copied: set[str] = set()
        while True:
            of_record = reached(graph, [*self._data, *(node_of[name] for name in copied)])
            operations: dict[Node, Operation] = {}
            for node in graph.nodes:
                operation = operation_of(node)
                if operation and not any(
                    isinstance(each, Node) and each in of_record for each in operation.others
                ):
                    operations[node] = operation
            uses: dict[str, list[Use]] = {}
            more: set[str] = set()
            for name in set(self.trained) - copied:
                found = _uses_of(node_of[name], operations)
                if found is None:
                    more.add(name)
                else:
                    uses[name] = found
            if not more:
                break
            copied |= more
        for name, each in uses.items():
            for use in each:
                use.operation.wanted += (use.role,)
        # What the loss does not depend on is found out by its missing gradient.
        return operations, uses, [name for name in self.trained if name in copied]

    def _for_all_sizes(self) -> GraphModule | None:
        graphs = [self._traced(size) for size in SIZES]
        try:
            _for_any_number(*graphs, *SIZES)
        except _Apart:
            return None
        return graphs[0]

    def _graph(self, size: int) -> GraphModule:
        if self._any is not None:
            return self._any
        if size not in self._graphs:
            graph = self._traced(size)
            _for_any_number(graph, graph, size, size)
            self._graphs[size] = graph
        return self._graphs[size]

    def _traced(self, size: int) -> GraphModule:
        record, layout = self.record, self._layout
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        state = record.state()
        device = state[0].device
        leaves = [
            torch.empty(size, *shape, dtype=dtype, device=device)
            for shape, dtype in (*record.leaves, *((draw.shape, torch.float32) for draw in record.draws))
        ]
        scale = torch.ones((), device=device)
        names = [*record.parameters, *record.buffers]

        def step(scale: Tensor, *values: Tensor) -> list[Tensor]:
            own, data = list(values[: len(names)]), values[len(names) :]
            copies = []
            dims: list[int | None] = [None] * len(own)
            for name in self.copied:
                at = names.index(name)
                own[at] = own[at].expand(size, *own[at].shape).detach().requires_grad_()
                copies.append(own[at])
                dims[at] = 0
            anchor = torch.zeros(size, 0, device=device, requires_grad=True)
            for operation in self.operations.values():
                operation.kept = []
            run = _WithOperations(record.loss, self.operations)
            losses = vmap(run, in_dims=(0, *dims, *[0] * len(data)))(anchor, *own, *data)
            wanted = [anchor, *copies]
            found: Sequence[Tensor | None] = [None] * len(wanted)
            if losses.requires_grad:
                found = torch.autograd.grad((losses * scale).sum(), wanted, allow_unused=True)
            outputs: list[Tensor] = []
            layout.clear()
            for operation in self.operations.values():
                if operation.wanted:
                    layout.append((operation, len(operation.kept)))
                    outputs += operation.kept
            for name, each in zip(self.copied, found[1:], strict=True):
                layout.append((name, int(each is not None)))
                outputs += [] if each is None else [each]
            return outputs

        with exact(), fake, torch.enable_grad():
            made_up = [fake.from_tensor(each, static_shapes=True) for each in (scale, *state, *leaves)]
            graph = make_fx(step)(*made_up)
        for node in list(graph.graph.nodes):
            # Nothing is differentiated any more.
            if node.target in (aten.detach.default, aten.alias.default):
                node.replace_all_uses_with(node.args[0])
                graph.graph.erase_node(node)
        graph.graph.eliminate_dead_code()
        return graph

    def unreached(self) -> list[str]:
        """Parameters that no gradient of the loss reaches."""
        missing = [what for what, count in self._layout if not count]
        names = [each for each in missing if isinstance(each, str)]
        for name, uses in self.uses.items():
            if all(use.operation in missing for use in uses):
                names.append(name)
        return [name for name in self.trained if name in names]

    def gradients(
        self, state: Sequence[Tensor], data: Sequence[Tensor], units: int
    ) -> dict[str, Gradient]:
        """For each trained parameter the gradients of all units.

        state: of `RecordGraph.state`. data: leaves and draws, (units * rows, ...) each; a unit's
        gradient is the mean over its rows.
        """
        rows = len(data[0]) // units
        scale = torch.tensor(1 / rows, device=state[0].device)
        # As they were traced: a graph views records, whose memory may be in another order.
        data = [each.contiguous() for each in data]
        outputs = list(self._graph(len(data[0]))(len(data[0]), scale, *state, *data))
        values = dict(zip(self.record.parameters, state, strict=False))
        kept: dict[Operation, list[Tensor]] = {}
        found: dict[str, Gradient] = {}
        for what, count in self._layout:
            mine, outputs = outputs[:count], outputs[count:]
            if isinstance(what, Operation):
                kept[what] = [_exact(each) for each in mine]
            else:
                each = mine[0].view(units, rows, *mine[0].shape[1:])
                whole = Stored(each.sum(1) if rows > 1 else each[:, 0])
                found[what] = Gradient(values[what], [(None, whole)])
        for name, uses in self.uses.items():
            found[name] = Gradient(values[name], _of_uses(uses, kept, units, values[name]))
        return {name: found[name] for name in self.trained}


def _of_uses(
    uses: Sequence[Use], kept: dict[Operation, list[Tensor]], units: int, value: Tensor
) -> list[tuple[Use | None, Factored]]:
    """Gradients by use; of uses that meet in the same numbers, of all of these together."""

    def of(use: Use) -> Factored:
        weight = use.of(value) if use.role == "weight" else None
        return use.operation.gradients(kept[use.operation], units, weight)[use.role]

    if len(uses) == 1:
        return [(uses[0], of(uses[0]))]
    parts = [use.part() for use in uses]
    first = parts[0]
    if first and all(part and part[0] is first[0] for part in parts) and len(set(parts)) == len(uses):
        return [(use, of(use)) for use in uses]
    products = all(isinstance(use.operation, Product) and use.role == "weight" for use in uses)
    if products and len({use.way() for use in uses}) == 1:
        # One product over the positions of all of them.
        pairs = [kept[use.operation] for use in uses]
        a, delta = (
            torch.cat([pair[at].reshape(units, -1, pair[at].shape[-1]) for pair in pairs], 1)
            for at in (0, -1)
        )
        return [(uses[0], Matrix(uses[0].of(value).flatten(0, -2).t(), a, delta))]
    total: Tensor | None = None
    for use in uses:
        back = vmap(lambda gradient, use=use: use.back(gradient, value))
        each = back(of(use).each())
        total = each if total is None else total + each
    assert total is not None
    return [(None, Stored(total))]


def _uses_of(parameter: Node, operations: dict[Node, Operation]) -> list[Use] | None:
    """The uses of a parameter by operations; None where it goes anywhere else."""
    uses: list[Use] = []
    ways: list[tuple[Node, tuple[Node, ...]]] = [(parameter, ())]
    for node, views in ways:
        for user in node.users:
            operation = operations.get(user)
            if user.target is aten.detach.default:
                continue
            if operation is not None:
                roles = [r for r, at in operation.parameters.items() if at < len(user.args) and user.args[at] is node]
                if user.args[operation.place] is node or not roles:
                    return None
                uses += [Use(operation, role, views) for role in roles]
            elif user.target in _VIEWS | _PARTS and user.args[0] is node:
                ways.append((user, (*views, user)))
            elif user.target is operator.getitem and node.target in _PARTS:
                ways.append((user, (*views, user)))
            else:
                return None
    return uses


class _WithOperations(Interpreter):
    """Runs a record's graph, with the watched operations in the place of torch's."""

    def __init__(self, graph: GraphModule, operations: dict[Node, Operation]):
        super().__init__(graph)
        self.operations = operations

    def __call__(self, anchor: Tensor, *values: Tensor) -> Any:
        """The record's loss; anchor: of `Watched`."""
        self.anchor = anchor
        return self.run(*values)

    def run_node(self, node: Node) -> Any:
        """As torch does, or watched."""
        operation = self.operations.get(node)
        if operation is None:
            return super().run_node(node)
        args, _ = self.fetch_args_kwargs_from_env(node)
        others = [each for at, each in enumerate(args) if at != operation.place]
        output = Watched.apply(self.anchor, args[operation.place], operation, *others)
        tuples = aten.native_group_norm.default, aten.native_layer_norm.default
        return (output,) if node.target in tuples else output


class _Apart(Exception):
    """Two graphs of different numbers of records that differ by more than these numbers."""


def _for_any_number(graph: GraphModule, other: GraphModule, size: int, other_size: int) -> None:
    """Make a graph that was traced with `size` records one of any number, its first argument."""
    nodes = graph.graph
    # Listed before anything is added: both may be one graph.
    pairs = list(zip(nodes.nodes, other.graph.nodes, strict=False))
    with nodes.inserting_before(next(iter(nodes.nodes))):
        records = nodes.placeholder("records")
    multiples: dict[int, Node] = {1: records}
    first = [node for node in nodes.nodes if node.op != "placeholder"][0]

    def either(one: Any, two: Any) -> Any:
        if isinstance(one, Node):
            return one
        if isinstance(one, list | tuple):
            return type(one)(either(*pair) for pair in zip(one, two, strict=True))
        if type(one) is not int or one == two:
            return one
        times, left = divmod(one, size)
        if left or two != times * other_size:
            raise _Apart(f"{one} for {size} records and {two} for {other_size}")
        if times not in multiples:
            with nodes.inserting_before(first):
                multiples[times] = nodes.call_function(operator.mul, (records, times))
        return multiples[times]

    for node, twin in pairs:
        if node.target != twin.target and node.op != "placeholder" and node.op != "get_attr":
            raise _Apart(f"{node.target} and {twin.target}")
        node.args = either(node.args, twin.args)
        node.kwargs = {key: either(value, twin.kwargs[key]) for key, value in node.kwargs.items()}
    nodes.lint()
    graph.recompile()


def _exact(value: Tensor) -> Tensor:
    """Numbers of fewer than 32 bits in float32, which has all of them."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
