"""One flat graph of what every record of a batch adds, made of the graph of one record.

`vmap` of a record's graph (`dpatlas.privacy.trace`) and one backward pass through it, written down
as operations on tensors with the records first: no operation of a record's graph can meet another
record, by the meaning of vmap. Of most parameters the graph keeps what the gradients of the records
follow from (`dpatlas.privacy.operations`); of others every record gets a copy of its own, whose
gradient is the record's. No user code runs here, so the graph can be made for as many phases and
batch sizes as are needed.
"""

import contextlib
import functools
import itertools
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vjp, vmap
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from dpatlas.errors import InputError
from dpatlas.privacy.derived import Derived, derived_from
from dpatlas.privacy.factors import Factored
from dpatlas.privacy.matrix import Matrix, Stored
from dpatlas.privacy.operations import Operation, Product, Watched, operation_of
from dpatlas.privacy.trace import (
    RecordGraph,
    RecordInterpreter,
    drop_unused,
    part_of,
    reached,
    where_of,
)

aten = torch.ops.aten
# Operations through which a weight reaches its product with every number in one place.
_VIEWS = {
    *(aten.t.default, aten.transpose.int, aten.permute.default, aten.view.default),
    *(aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims),
    *(aten.alias.default, aten._to_copy.default, aten.clone.default),
}
# Operations that give parts of a weight, no number twice.
_PARTS = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}
_NO_RULE = re.compile(r"batching rule for ([\w:]+)")
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
        if self.role == "weight":
            gradient = self.operation.as_argument(gradient)
        views = [node for node in self.views if node.target is not aten._to_copy.default]
        if all(node.target is aten.t.default for node in views):
            return gradient.t() if len(views) % 2 else gradient
        # In the gradient's own type, which may have more digits than the parameter's.
        pull = vjp(self.of, like.to(gradient.dtype))[1]
        found: Tensor = pull(gradient)[0]
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
        return functools.reduce(operator.add, (part.norms2(small) for _, part in self.parts))

    def weighted(self, factors: Tensor) -> Tensor:
        """sum_i c_i g_i in the parameter's shape."""

        def of(use: Use | None, part: Factored) -> Tensor:
            each = part.weighted(factors)
            return each.view(self.like.shape) if use is None else use.back(each, self.like)

        return functools.reduce(operator.add, itertools.starmap(of, self.parts))

    def discard(self, bad: Tensor) -> None:
        """As `Factored.discard`."""
        for _, part in self.parts:
            part.discard(bad)


class BatchGraph:
    """What a batch's records add to the gradients of the parameters `trained`, by name.

    uses: of each parameter, or node that follows from parameters, that operations watch. derived:
    those nodes. copied: the parameters of which each record has a copy.
    """

    def __init__(self, record: RecordGraph, trained: Sequence[str]):
        # Without values: one graph serves all trainings of the same network.
        self.loss, self.leaves, self.draws = record.loss, record.leaves, record.draws
        self.parameters, self.buffers = list(record.parameters), list(record.buffers)
        self._kinds = [(v.shape, v.stride(), v.dtype) for v in record.state()]
        self.device, self.trained = record.state()[0].device, list(trained)
        graph = record.loss.graph
        self.holders = graph.find_nodes(op="placeholder")
        count = len(record.parameters)
        self._own = dict(zip(self.holders, record.parameters, strict=False))
        self._data = self.holders[count + len(record.buffers) :]
        self.operations, self.uses, self.copied, self.derived = self._plan(graph)
        own = count + len(record.buffers)
        self._derive = [part_of(record.loss, each.nodes, own).forward for each in self.derived]
        self._layout: list[tuple[Any, int]] = []
        # Operations whose parameters are read by no other one.
        several = {
            use.operation
            for name, uses in self.uses.items()
            if len(uses) > 1 or not isinstance(name, str)
            for use in uses
        }
        self._alone = {each for each in self.operations.values() if each not in several}
        # Operations that torch computes record by record, with their modules.
        self.slow: list[str] = []
        # By the number of records where torch computes an operation record by record.
        self._graphs: dict[int, GraphModule] = {}
        self._any = self._for_all_sizes()

    @property
    def held(self) -> list[str]:
        """The parameters whose gradients are held for every record, by copies or otherwise."""
        names = {name for each in self.derived for name in each.names} | set(self.copied)
        return [name for name in self.trained if name in names]

    def _plan(
        self, graph: Graph
    ) -> tuple[dict[Node, Operation], dict[str | Node, list[Use]], list[str], list[Derived]]:
        """Operations to watch, uses of parameters by them, parameters to be copied, and others."""
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
            uses: dict[str | Node, list[Use]] = {}
            more: set[str] = set()
            alone: set[str] = set()
            for name in set(self.trained) - copied:
                found = _uses_of(node_of[name], operations)
                if found is None:
                    more.add(name)
                else:
                    uses[name] = found
                    if any(use.operation.node not in of_record for use in found):
                        alone.add(name)

            users = {each: operations[each] for each in operations if each in of_record}
            uses_beyond = functools.partial(_uses_of, operations=users, among=of_record)
            free = {name: node_of[name] for name in self.trained if name not in copied}
            derived: list[Derived] = []
            if more | alone:
                derived = derived_from(list(more | alone), free, of_record, uses_beyond)
            more -= {name for each in derived for name in each.names}
            if not more:
                break
            copied |= more
        for group in derived:
            for name in group.names:
                uses.pop(name, None)
            for node in group.nodes:
                uses[node] = uses_beyond(node) or []
            for node in group.inside:
                operations.pop(node, None)
        for each in uses.values():
            for use in each:
                use.operation.wanted += (use.role,)
        # What the loss does not depend on is found out by its missing gradient.
        return operations, uses, [name for name in self.trained if name in copied], derived

    def _for_all_sizes(self) -> GraphModule | None:
        graph, other = (self._traced(size) for size in SIZES)
        try:
            _for_any_number(graph, other, *SIZES)
            self._with_gradients(graph)
        except _Apart:
            return None
        return graph

    def _graph(self, size: int) -> GraphModule:
        if self._any is not None:
            return self._any
        if size not in self._graphs:
            graph = self._traced(size)
            _for_any_number(graph, graph, size, size)
            self._with_gradients(graph)
            self._graphs[size] = graph
        return self._graphs[size]

    def _traced(self, size: int) -> GraphModule:
        layout, device = self._layout, self.device
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        draws = [(draw.shape, torch.float32) for draw in self.draws]
        names = [*self.parameters, *self.buffers]

        def step(scale: Tensor, *values: Tensor) -> list[Tensor]:
            own, data = list(values[: len(names)]), values[len(names) :]
            copies = []
            dims: list[int | None] = [None] * len(own)
            for name in self.copied:
                at = names.index(name)
                own[at] = own[at].expand(size, *own[at].shape).detach().requires_grad_()
                copies.append(own[at])
                dims[at] = 0
            anchor = torch.zeros(size, 0, dtype=torch.float32, device=device, requires_grad=True)
            for operation in self.operations.values():
                operation.kept = []
            run = _WithOperations(self.loss, self.operations)
            losses = vmap(run, in_dims=(0, *dims, *[0] * len(data)))(anchor, *own, *data)
            wanted = [anchor, *copies]
            found: Sequence[Tensor | None] = [None] * len(wanted)
            if losses.requires_grad:
                found = torch.autograd.grad(losses, wanted, scale.expand(size), allow_unused=True)
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

        plain = torch.autograd.set_detect_anomaly(False)
        slow = _slow_operations(self.loss.graph, self.slow)
        with plain, fake, torch.enable_grad(), slow:
            scale = torch.ones((), dtype=torch.float32, device=device)
            state = [
                torch.empty_strided(shape, stride, dtype=dtype, device=device)
                for shape, stride, dtype in self._kinds
            ]
            leaves = [
                torch.empty(size, *shape, dtype=dtype, device=device)
                for shape, dtype in (*self.leaves, *draws)
            ]
            try:
                graph = make_fx(step)(scale, *state, *leaves)
            except RuntimeError as error:
                line = f"{error}".splitlines()[0][:300]
                found = f"an error in the gradients of a batch: {line}"
                raise InputError("model", found, "operations that torch differentiates") from None
        _simplify(graph.graph)
        return graph

    def _with_gradients(self, graph: GraphModule) -> None:
        """Make per-record gradients as soon as what they follow from is there.

        So activations and output gradients are given back early.
        """
        nodes = graph.graph
        (output,) = nodes.find_nodes(op="output")
        holders = nodes.find_nodes(op="placeholder")
        with nodes.inserting_before(next(iter(nodes.nodes))):
            units = nodes.placeholder("units")
        own = dict(zip(self.parameters, holders[2:], strict=False))
        weight_of = {
            use.operation: (use, own[name])
            for name, uses in self.uses.items()
            for use in uses
            if use.role == "weight" and isinstance(name, str)
        }
        kept: list[Any] = list(output.args[0])
        results: list[Any] = []
        place = {node: at for at, node in enumerate(nodes.nodes)}
        for what, count in self._layout:
            mine, kept = kept[:count], kept[count:]
            if not (isinstance(what, Operation) and what in self._alone and count):
                results.append(list(mine))
                continue
            use, weight = weight_of.get(what, (None, None))
            with nodes.inserting_after(max(mine, key=place.__getitem__)):
                results.append(nodes.call_function(_maker(what, use), (units, weight, *mine)))
        output.args = (results,)
        graph.recompile()

    def unreached(self) -> list[str]:
        """Parameters that no gradient of the loss reaches."""
        missing = [what for what, count in self._layout if not count]
        names = [each for each in missing if isinstance(each, str)]
        for name, uses in self.uses.items():
            if isinstance(name, str) and all(use.operation in missing for use in uses):
                names.append(name)
        for group in self.derived:
            if all(use.operation in missing for node in group.nodes for use in self.uses[node]):
                names += group.names
        return [name for name in self.trained if name in names]

    def gradients(
        self, state: Sequence[Tensor], data: Sequence[Tensor], units: int
    ) -> dict[str, Gradient]:
        """For each trained parameter the gradients of all units.

        state: of `RecordGraph.state`. data: leaves and draws, (units * rows, ...) each; a unit's
        gradient is the mean over its rows.
        """
        rows = len(data[0]) // units
        # As they were traced: a graph views records, whose memory may be in another order.
        data = [each.contiguous() for each in data]
        scale = torch.full((), 1 / rows, dtype=torch.float32, device=state[0].device)
        # Not called as a module, whose global hooks would see the records.
        run = self._graph(len(data[0])).forward
        try:
            outputs = run(units, len(data[0]), scale, *state, *data)
        except (IndexError, RuntimeError) as error:
            line = f"{error}".splitlines()[0][:200]
            if "index" not in line:
                raise
            allowed = "codes and labels within their tables, checked before the training"
            raise InputError("records", f"an index out of range: {line}", allowed) from None
        values = dict(zip(self.parameters, state, strict=False))
        kept: dict[Operation, Any] = {}
        found: dict[str, Gradient] = {}
        for (what, _), mine in zip(self._layout, outputs, strict=True):
            if isinstance(what, Operation):
                kept[what] = mine
            else:
                each = mine[0].view(units, rows, *mine[0].shape[1:])
                whole = Stored(_exact(each.sum(1) if rows > 1 else each[:, 0]))
                found[what] = Gradient(values[what], [(None, whole)])
        for name, uses in self.uses.items():
            if isinstance(name, str):
                # Not those behind a .detach().
                used = [use for use in uses if kept[use.operation]]
                found[name] = Gradient(values[name], _of_uses(used, kept, units, values[name]))
        buffers = state[len(values) :]
        for group, function in zip(self.derived, self._derive, strict=True):

            def each_of(weights: list[Tensor], group: Derived = group) -> list[Tensor]:
                pairs = zip(group.nodes, weights, strict=True)
                return [_held(self.uses[node], kept, units, weight) for node, weight in pairs]

            for name, pulled in group.pull(function, values, buffers, each_of).items():
                found[name] = Gradient(values[name], [(None, Stored(_exact(pulled)))])
        return {name: found[name] for name in self.trained}


def _of_uses(
    uses: Sequence[Use], kept: dict[Operation, Any], units: int, value: Tensor
) -> list[tuple[Use | None, Factored]]:
    """Gradients by use; of uses that meet in the same numbers, of all of these together."""

    def of(use: Use) -> Factored:
        if isinstance(kept[use.operation], dict):
            return kept[use.operation][use.role]
        weight = use.of(value) if use.role == "weight" else None
        exact = list(map(_exact, kept[use.operation]))
        return use.operation.gradients(exact, units, weight)[use.role]

    if len(uses) == 1:
        return [(uses[0], of(uses[0]))]
    parts = [use.part() for use in uses]
    first, apart = parts[0], len(set(parts)) == len(uses)
    if first and apart and all(part and part[0] is first[0] for part in parts):
        return [(use, of(use)) for use in uses]
    products = all(isinstance(use.operation, Product) and use.role == "weight" for use in uses)
    if products and len({use.way() for use in uses}) == 1:
        # One product over the positions of all of them.
        pairs = [list(map(_exact, kept[use.operation])) for use in uses]
        a, delta = (
            torch.cat([pair[at].reshape(units, -1, pair[at].shape[-1]) for pair in pairs], 1)
            for at in (0, -1)
        )
        return [(uses[0], Matrix(uses[0].of(value).flatten(0, -2).t(), a, delta))]
    return [(None, Stored(_sum(value, [(use, of(use)) for use in uses])))]


def _held(
    uses: Sequence[Use], kept: dict[Operation, list[Tensor]], units: int, value: Tensor
) -> Tensor:
    """Every unit's gradient of a weight, (units, *shape)."""
    used = [use for use in uses if kept[use.operation]]
    if not used:
        return value.new_zeros(units, *value.shape)
    return _sum(value, _of_uses(used, kept, units, value))


def _sum(value: Tensor, parts: Sequence[tuple[Use | None, Factored]]) -> Tensor:
    """The gradients by unit of all parts, in the shape of the parameter."""

    def of(use: Use | None, part: Factored) -> Tensor:
        each = part.each()
        if use is not None:
            each = vmap(lambda gradient: use.back(gradient, value))(each)
        return each.view(-1, *value.shape)

    return functools.reduce(operator.add, itertools.starmap(of, parts))


def _uses_of(
    parameter: Node, operations: dict[Node, Operation], among: set[Node] | None = None
) -> list[Use] | None:
    """The uses of a parameter by operations; None where it goes anywhere else.

    among: the users that count; by default all.
    """
    uses: list[Use] = []
    ways: list[tuple[Node, tuple[Node, ...]]] = [(parameter, ())]
    for node, views in ways:
        for user in node.users:
            operation = operations.get(user)
            if user.target is aten.detach.default or (among is not None and user not in among):
                continue
            if operation is not None:
                places, args = operation.parameters.items(), dict(enumerate(user.args))
                roles = [role for role, at in places if args.get(at) is node]
                if any(user.args[at] is node for at in operation.places) or not roles:
                    return None
                uses += [Use(operation, role, views) for role in roles]
            elif getattr(user.kwargs.get("dtype"), "is_complex", False):
                return None
            elif (user.target in _VIEWS | _PARTS and user.args[0] is node) or (
                user.target is operator.getitem and node.target in _PARTS
            ):
                ways.append((user, (*views, user)))
            else:
                return None
    return uses


def _maker(operation: Operation, use: Use | None) -> Callable[..., dict[str, Factored]]:
    """A function of the number of units, the parameter and what an operation keeps."""

    def gradients(units: int, weight: Tensor | None, *kept: Tensor) -> dict[str, Factored]:
        viewed = use.of(weight) if use and weight is not None else None
        return operation.gradients(list(map(_exact, kept)), units, viewed)

    gradients.__qualname__ = gradients.__name__ = f"gradients_{id(operation)}"
    return gradients


class _WithOperations(RecordInterpreter):
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
            try:
                return super().run_node(node)
            except RuntimeError as error:
                line = f"{error}".splitlines()[0][:200]
                found = f"{node.target}, which torch cannot compute for a batch: {line}"
                raise InputError(where_of(node), found, "other operations") from None
        args, named = self.fetch_args_kwargs_from_env(node)
        inputs = [args[at] for at in operation.places]
        if (mask := named.get("attn_mask")) is not None:
            inputs.append(mask)
        others = [each for at, each in enumerate(args) if at not in operation.places]
        output = Watched.apply(self.anchor, operation, len(inputs), *inputs, *others)
        one_of_several = any(user.target is operator.getitem for user in node.users)
        return (output,) if one_of_several else output


def _simplify(graph: Graph) -> None:
    """Drop what changes nothing where nothing is differentiated any more."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        source = node.args[0] if node.args else None
        shape = _shape(node)
        same = node.target in (aten.detach.default, aten.alias.default)
        in_order = list(range(len(shape)))
        same |= node.target is aten.permute.default and list(node.args[1]) == in_order
        if node.target in (aten.view.default, aten._unsafe_view.default):
            while source.target in (aten.view.default, aten._unsafe_view.default):  # type: ignore[union-attr]
                # A view of a view is one of what that one is of.
                source = source.args[0]  # type: ignore[union-attr]
            node.args = (source, node.args[1])
            same = shape == _shape(source)
        if same:
            node.replace_all_uses_with(source)
            graph.erase_node(node)
    drop_unused(graph)


def _shape(node: Any) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, Tensor) else ()


@contextlib.contextmanager
def _slow_operations(graph: Graph, found: list[str]) -> Iterator[None]:
    """Adds to `found` what torch computes record by record, in place of torch's warnings."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
    finally:
        torch.set_warn_always(always)
    for each in said:
        if not (told := _NO_RULE.search(str(each.message))):
            continue
        name = told[1].replace("::", ".")
        places = {where_of(node) for node in graph.nodes if name in str(node.target)}
        line = f"{', '.join(sorted(places)) or 'backward'}: {name}"
        if line not in found:
            found.append(line)


class _Apart(Exception):
    """Two graphs of different numbers of records that differ by more than these numbers."""


def _for_any_number(graph: GraphModule, other: GraphModule, size: int, other_size: int) -> None:
    """Make a graph that was traced with `size` records one of any number, its first argument."""
    nodes = graph.graph
    with nodes.inserting_before(next(iter(nodes.nodes))):
        records = nodes.placeholder("records")
    multiples: dict[int, Node] = {1: records}
    first = next(node for node in nodes.nodes if node.op != "placeholder")

    def either(one: Any, two: Any) -> Any:
        if isinstance(one, Node):
            return one
        if isinstance(one, list | tuple):
            return type(one)(either(*pair) for pair in zip(one, two, strict=True))
        if one == two or one != one:
            return one
        whole = type(one) is type(two) is int
        if not whole or one % size or two != one // size * other_size:
            raise _Apart(f"{one} for {size} records and {two} for {other_size}")
        times = one // size
        if times not in multiples:
            with nodes.inserting_before(first):
                multiples[times] = nodes.call_function(operator.mul, (records, times))
        return multiples[times]

    own, twins = ([n for n in each.nodes if n is not records] for each in (nodes, other.graph))
    for node, twin in zip(own, twins, strict=False):
        if node.target != twin.target and node.op != "placeholder" and node.op != "get_attr":
            raise _Apart(f"{node.target} and {twin.target}")
        node.args = either(node.args, twin.args)
        node.kwargs = {key: either(value, twin.kwargs[key]) for key, value in node.kwargs.items()}
    nodes.lint()
    graph.recompile()


def _exact(value: Tensor) -> Tensor:
    """Numbers of fewer than 32 bits in float32, which has all of them."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
