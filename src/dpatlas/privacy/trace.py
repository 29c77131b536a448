"""The loss of one record as a graph: what a private step computes of a record, and nothing else.

`trace_record` calls the user's network and loss once, on a record that has shapes and no numbers,
and writes down the operations. Every step then runs this graph: the user's Python is not called
again, so what a global, a hook, a list or a class becomes later has no effect. The graph has one
record as its input, so nothing of another record can be in it. Refused, in one line that names the
module, is what would get round that: reading a value of the record into Python, keeping a tensor of
it, writing it into a buffer or parameter, and gradients by other rules than those of the graph.
"""

import contextlib
import functools
import gc
import hashlib
import logging
import math
import operator
import random
import re
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch._decomp import get_decompositions
from torch._functorch.eager_transforms import _autograd_grad
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.func import functionalize, vmap
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode

from dpatlas.errors import InputError
from dpatlas.privacy.data import overlap, tensors_of
from dpatlas.privacy.digest import numbers_of

aten = torch.ops.aten
_LOCK = threading.RLock()
# A checkpoint goes on with another device.
_DEVICE = re.compile(r"device\(type='\w+'(, index=\d+)?\)")
# What random numbers of a record are drawn from.
UNIFORM, NORMAL = "uniform", "normal"
# Operations that are written as others, which have a rule for batches.
_IN_PARTS = (
    *(aten._weight_norm_interface, aten.native_batch_norm, aten._native_batch_norm_legit),
    *(aten.multi_margin_loss, aten.multilabel_margin_loss_forward, aten.soft_margin_loss),
    *(aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d),
    *(aten._upsample_nearest_exact3d, aten.max_unpool2d, aten.max_unpool3d, aten.renorm),
)
# Operations of numbers of one type, which fake tensors do not check.
_PRODUCTS = aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default
# Operations that allocate memory without initialising it.
_UNFILLED = (
    *(aten.empty.memory_format, aten.empty_like.default, aten.empty_strided.default),
    *(aten.empty_permuted.default, aten.new_empty.default, aten.new_empty_strided.default),
)
# Whose operations are torch's own, with batching rules that meet no other record.
_OPERATIONS = ("aten", "prims", "torchvision")
_WITHOUT_READING = (
    "torch.where in place of a branch, what is read as an input of the record (lengths, the "
    "position to read from), and checks of values before the training"
)
_BEHIND = "a write that autograd does not see: under no_grad, or through .data or .detach()"
_WRITES = {
    *("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__"),
    *("__imod__", "__ipow__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"),
}
# Functions, and by __get__ properties, whose results may be views.
_VIEWS = {
    *("__get__", "__getitem__", "view", "view_as", "reshape", "reshape_as", "flatten", "ravel"),
    *("unflatten", "unsqueeze", "squeeze", "t", "transpose", "permute", "movedim", "moveaxis"),
    *("swapaxes", "swapdims", "expand", "expand_as", "broadcast_to", "select", "narrow", "chunk"),
    *("split", "tensor_split", "unbind", "unfold", "diagonal", "as_strided", "hsplit", "vsplit"),
    *("adjoint", "real", "imag", "view_as_real", "view_as_complex", "alias", "detach"),
}
_DATA: Any = Tensor.data
_GRAD_FN: Any = Tensor.grad_fn
_READS = ("numpy", "__array__", "tolist", "__dlpack__", "data_ptr", "untyped_storage")
_INNER_GRADIENT = "torch.func.grad of a function of tensors; .detach() for a constant"
_PACKED = (
    "the padded sequences themselves, with their lengths as an input and a mask: "
    "out, _ = rnn(x); mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]; "
    "pooled = (out * mask.unsqueeze(2)).sum(1) / lengths[:, None]"
)
_OWN_BACKWARD = "an autograd.Function with a backward of its own"
_KNOWN = "operations of torch, whose gradients torch knows; checkpoint(use_reentrant=False)"
# Of torch's errors: at a function with a backward of its own, and where Python reads a value.
_OWN_FUNCTION = ("autograd.Function", "AutogradFunction", "custom_function_call")
_READING = (
    *("unallocated storage", "value out of a tracing tensor", ".item()", "data-dependent"),
    *("Cannot access data", "data is not allocated"),
)
_INDEX = "torch.where(mask, x, 0), or a product with the mask, in place of x[mask]"
_KEEPS = "a forward pass that keeps nothing from one call to the next"
_BATCH_NORM = "GroupNorm (dpatlas.privacy.to_group_norm(model) replaces it), or evaluation mode"


@dataclass(frozen=True)
class Draw:
    """Random numbers that a record's graph takes, of this shape, uniform on [0, 1) or normal."""

    kind: str
    shape: tuple[int, ...]

    def numbers(
        self, device: torch.device, *rows: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Such numbers, (*rows, *shape)."""
        make = torch.rand if self.kind == UNIFORM else torch.randn
        shape = (*rows, *self.shape)
        return make(shape, generator=generator, dtype=torch.float32, device=device)


@dataclass(frozen=True)
class RecordGraph:
    """The loss of one record, `loss(*parameters, *buffers, *leaves, *draws)`: one number.

    parameters, buffers: the model's own tensors by name, read anew at each step. leaves: tensors of
    a record and its target, in the order of `torch.utils._pytree`: shapes (1, ...) and types.
    draws: what random operations became. `updates`, called with parameters and buffers, gives the
    new values of the buffers `updated`, which follow from those alone. constants: tensors that
    network or loss reached otherwise, as copies, by the name under which they were found; origins:
    what they are copies of. outputs: size of the last dimension of a record's output. digest: of
    graph, constants and shapes, for checkpoints.
    """

    loss: GraphModule
    parameters: dict[str, nn.Parameter]
    buffers: dict[str, Tensor]
    leaves: tuple[tuple[torch.Size, torch.dtype], ...]
    draws: tuple[Draw, ...]
    updates: GraphModule | None
    updated: tuple[str, ...]
    constants: dict[str, Tensor]
    origins: dict[str, Tensor]
    outputs: int
    digest: str

    def state(self) -> list[Tensor]:
        """Parameters and buffers as they are now, without autograd."""
        return [value.detach() for value in (*self.parameters.values(), *self.buffers.values())]

    @torch.no_grad()
    def update_buffers(self) -> None:
        """Write the new values of the buffers that the network moves at each call."""
        if self.updates is not None:
            new = self.updates.forward(*self.state())
            for name, value in zip(self.updated, new, strict=True):
                self.buffers[name].copy_(value)


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """While a graph is made: one thread at a time, as functions of torch are replaced for all."""
    # torch logs errors of fake tensors; they are raised again in one line.
    log = logging.getLogger("torch._subclasses.fake_tensor")
    with _LOCK:
        before, log.disabled = log.disabled, True
        try:
            yield
        finally:
            log.disabled = before


def called(model: Callable[..., Any], x: Any) -> Any:
    """model(x), model(*x) of a tuple or model(**x) of a dict."""
    if isinstance(x, dict):
        return model(**x)
    return model(*x) if isinstance(x, tuple) else model(x)


def trace_record(
    model: nn.Module,
    loss: Callable[..., Any],
    x: Any,
    target: Any,
    autocast: torch.dtype | None = None,
    one_number: bool = True,
) -> RecordGraph:
    """The graph of loss(model(x), target) of one record.

    x, target: a record's tensors, (1, ...) each, in tuples or dicts as the model and the loss take
    them; only shapes, types and devices are used. Without a target the loss gets None. autocast:
    the type of the products, if any. one_number: whether the loss must be that, as for a gradient.
    Raises InputError that names the module for what cannot be traced, or must not be.
    """
    _refuse_layers(model)
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    leaves, structure = pytree.tree_flatten((x,) if target is None else (x, target))
    names, state = [*parameters, *buffers], [*parameters.values(), *buffers.values()]
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    made_up = [fake.from_tensor(each.detach(), static_shapes=True) for each in (*state, *leaves)]
    notes: dict[str, Any] = {}

    def one(*values: Tensor) -> list[Tensor]:
        own, of_record = values[: len(names)], values[len(names) :]
        learned = (*own[: len(parameters)], *parameters.values())
        watch = notes["watch"] = _Watch(of_record, learned)
        before = {name: dict(vars(module)) for name, module in model.named_modules()}
        with _in_place_of(model, dict(zip(names, own, strict=True))) as buffers_now:
            kind = leaves[0].device.type
            with torch.autocast(kind, autocast, enabled=autocast is not None), watch:
                record, *goals = pytree.tree_unflatten(list(of_record), structure)
                goal = goals[0] if goals else None
                output = called(model, record)
                notes["outputs"] = _last_size(output)
                value = loss(output, goal)
                record = goals = goal = output = None
            found = buffers_now()
            _refuse_new_attributes(model, before, watch)
        given = isinstance(value, Tensor)
        if not given or (one_number and not (value.numel() == 1 and value.is_floating_point())):
            kind = f"{value.dtype} of shape {tuple(value.shape)}" if given else type(value).__name__
            allowed = "one value a record (reduction='none', then a mean over its own values)"
            raise InputError("loss", f"{kind} for one record", allowed)
        return [value.reshape(()) if one_number else value, *(found[name] for name in buffers)]

    where, drawn = _Where(model), _python_draws()
    seeded = torch.random.get_rng_state()
    try:
        # A CPU's fused attention has a rule of its own.
        plain = _plain_operations(leaves[0].device.type == "cpu")
        with where, plain, torch.enable_grad(), fake, preserve_node_meta():
            table: Any = get_decompositions(_IN_PARTS)
            graph = make_fx(functionalize(one, remove="mutations"), table)(*made_up)
            _drop_detached(graph)
            if any(_is_mutable(node) and not _writes_input(node) for node in graph.graph.nodes):
                # What torch's recurrent layers write in place inside.
                again = functionalize(Interpreter(graph).run, remove="mutations")
                graph = make_fx(again)(*made_up)
                _drop_detached(graph)
        for node in graph.graph.find_nodes(op="call_function", target=aten.detach_copy.default):
            node.target = aten.detach.default
    except InputError as error:
        raise InputError(error.where or where.name(), error.found, error.allowed) from None
    except Exception as error:  # a stranger's network may raise anything
        raise _refusal(where.name(), error) from None
    if not torch.equal(torch.random.get_rng_state(), seeded):
        found = "torch.manual_seed, or a generator that draws, in the forward pass"
        raise InputError("model", found, "draws that are torch's anew; fixed ones as a buffer")
    if _python_draws() != drawn:
        allowed = "those of torch, which are drawn anew at each step"
        raise InputError("model", "random numbers of Python or numpy in the forward pass", allowed)
    watch: _Watch = notes.pop("watch")
    del made_up
    constants, origins = _constants(graph, model, loss, [*parameters.items(), *buffers.items()])
    _refuse_kept(watch, model, loss)

    nodes = graph.graph
    _drop_profiling(nodes)
    _refuse_operations(nodes)
    holders = list(nodes.find_nodes(op="placeholder"))
    own, of_record = holders[: len(names)], holders[len(names) :]
    _drop_writes(nodes, dict(zip(own, names, strict=True)), list(parameters))
    _without_copies(nodes)
    _fused(nodes, own[: len(parameters)])
    _within_size(nodes)
    _filled(nodes)
    draws = _with_draws(nodes)
    moved_by_records = reached(
        nodes, [*of_record, *nodes.find_nodes(op="placeholder")[len(holders) :]]
    )
    (output,) = nodes.find_nodes(op="output")
    value, *after = output.args[0]
    new = {
        name: node
        for name, node, before in zip(buffers, after, own[len(parameters) :], strict=True)
        if node is not before
    }
    for name, node in new.items():
        if node in moved_by_records:
            found = f"{name}, a buffer that a record moves"
            raise InputError(layer_of(model, name), found, _BATCH_NORM)
    updates = None
    if new:
        updates = part_of(graph, list(new.values()), len(names))
        _tidy(updates.graph)
    output.args = (value,)
    _tidy(nodes)
    graph.recompile()
    told = [
        _DEVICE.sub("", graph.code),
        *([_DEVICE.sub("", updates.code)] if updates else []),
        *(f"{each.dtype} {tuple(each.shape)}" for each in (*state, *leaves)),
    ]
    digest = hashlib.sha256("\n".join(told).encode())
    for name, tensor in constants.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(numbers_of(tensor))
    return RecordGraph(
        loss=graph,
        parameters=parameters,
        buffers=buffers,
        leaves=tuple((leaf.shape, leaf.dtype) for leaf in leaves),
        draws=draws,
        updates=updates,
        updated=tuple(new),
        constants=constants,
        origins=origins,
        outputs=notes["outputs"],
        digest=digest.hexdigest(),
    )


def outputs_alone(model: nn.Module, x: Any) -> Callable[[Any], Tensor]:
    """A function that gives the network's outputs of many records, each computed of it alone.

    x: one record's tensors, (1, ...) each. Raises InputError as `trace_record`.
    """
    graph = trace_record(model, lambda output, _: output, x, None, one_number=False)
    if graph.draws:
        raise InputError("model", "random numbers in the forward pass", "a network without them")
    return _of_each(graph)


def _of_each(graph: RecordGraph) -> Callable[..., Tensor]:
    """A function that gives what the graph gives of each of many records' tensors, one by one."""
    state, leaves = graph.state(), len(graph.leaves)
    each = vmap(RecordInterpreter(graph.loss).run, in_dims=(*[None] * len(state), *[0] * leaves))

    def outputs(*data: Any) -> Tensor:
        found: Tensor = each(*state, *(leaf.unsqueeze(1) for leaf in pytree.tree_leaves(data)))
        return found.flatten(0, 1)

    outputs.graph = graph  # type: ignore[attr-defined]
    return outputs


def trace_views(apply: Callable[[Tensor, Tensor], Tensor], x: Tensor, parameters: Tensor) -> Any:
    """A function that gives the views of many records as apply(x, parameters) gives one record's.

    x (1, ...), parameters (1, ...): only shapes and types are used. The function takes (records,
    ...) of both and gives (records * views, ...). Raises InputError as `trace_record`.
    """

    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.none = nn.Parameter(torch.zeros(1, device=x.device))

        def forward(self, rows: Tensor, parameters: Tensor) -> Tensor:
            return apply(rows, parameters)

    taken = x, parameters
    try:
        graph = trace_record(Views(), lambda views, _: views, taken, None, one_number=False)
    except InputError as error:
        where = error.where.replace("model", "augmentation")
        raise InputError(where, error.found, error.allowed) from None
    if graph.draws:
        raise InputError("augmentation", "random numbers in apply", "`draw`, whose draws are keyed")
    return _of_each(graph)


def reached(graph: Graph, sources: Iterable[Node]) -> set[Node]:
    """The nodes that depend on any of the sources, and these."""
    found = set(sources)
    for node in graph.nodes:
        if any(each in found for each in node.all_input_nodes):
            found.add(node)
    return found


def drop_unused(graph: Graph) -> None:
    """Drop what no output needs, of a graph that draws nothing; writes in place stay.

    torch would keep fused attention, which it counts among what draws random numbers. Its gradients
    write in place: that of a real Fourier transform, for one.
    """
    graph.eliminate_dead_code(
        lambda node: node.op in ("placeholder", "output") or _is_mutable(node)
    )


def part_of(graph: GraphModule, outputs: Sequence[Node], inputs: int) -> GraphModule:
    """The part of a graph that these nodes need, as a function of so many of its first inputs."""
    part, copies = Graph(), dict[Node, Node]()
    part.graph_copy(graph.graph, copies)
    part.output([copies[node] for node in outputs])
    drop_unused(part)
    for holder in part.find_nodes(op="placeholder")[inputs:]:
        part.erase_node(holder)
    return GraphModule(graph, part)


class RecordInterpreter(Interpreter):
    """Interprets the graph of one record under vmap, with a safe rule for embedding look-ups."""

    def __init__(self, graph: GraphModule):
        super().__init__(graph)
        # fx would add several lines to the message of an error.
        self.extra_traceback = False

    def run_node(self, node: Node) -> Any:
        """As torch does, but for look-ups in a table of the record, or in its copy of one.

        torch's rule reads and moves the next record's table at an index beyond the end of one.
        """
        if node.target is not aten.embedding.default:
            return super().run_node(node)
        table, indices, *rest = self.fetch_args_kwargs_from_env(node)[0]
        rows = table.index_select(0, indices.flatten()).view(*indices.shape, -1)
        if not rest or rest[0] < 0:
            return rows
        return torch.where((indices == rest[0]).unsqueeze(-1), rows.detach(), rows)


class _Watch(TorchFunctionMode):
    """Sees each call of torch while a record's loss is traced.

    Results under `no_grad` become constants of the gradient, which a graph of operations would not
    show, and what was computed of the record is remembered, without holding it.
    """

    def __init__(self, of_record: Sequence[Tensor], parameters: Iterable[Tensor]):
        super().__init__()
        # By their ids: what depends on the record; what has a gradient of a parameter; and what
        # shares memory with such a tensor, without its gradient.
        self.of_record: dict[int, weakref.ref[Tensor]] = {}
        self.learned: dict[int, weakref.ref[Tensor]] = {}
        self.aliases: dict[int, weakref.ref[Tensor]] = {}
        self._remember(self.of_record, of_record)
        self._remember(self.learned, parameters)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """The call's result, without a gradient where autograd is off."""
        kwargs = kwargs or {}
        name = str(getattr(function, "__name__", "")).partition(".")[0]
        if name in _READS and args and isinstance(args[0], Tensor):
            raise InputError("", f"the numbers of a tensor read by .{name}()", _WITHOUT_READING)
        function = _IN_PLACE_OF.get(function, function)
        tensors, off = tensors_of((args, kwargs)), not torch.is_grad_enabled()
        written = _written(name, args, kwargs)
        for each in written:
            if id(each) in self.aliases or (off and id(each) in self.learned):
                raise InputError("", _BEHIND, "the same by operations that give a new tensor")
        of_record, learned, alias = (
            any(id(each) in known for each in tensors)
            for known in (self.of_record, self.learned, self.aliases)
        )
        if off and written:
            # What is written has no gradient, whatever its sources have.
            kept = {id(each) for each in written}
            args, kwargs = pytree.tree_map_only(
                Tensor, lambda v: v if id(v) in kept else _without_gradient(v), (args, kwargs)
            )
        result = function(*args, **kwargs)
        view = name in _VIEWS
        # Not of an argument that was changed in place.
        new = off and not any(result is each for each in tensors)
        if new and (learned or not view):
            result = pytree.tree_map_only(Tensor, _without_gradient, result)
        found = [*tensors_of(result), *written]
        if of_record:
            self._remember(self.of_record, found)
        if learned and not (off or function is _detached or name.endswith("_like")):
            self._remember(self.learned, [each for each in found if each.is_floating_point()])
        if function is _detached or (view and (alias or (off and learned))):
            self._remember(self.aliases, tensors_of(result))
        return result

    def alive(self) -> list[Tensor]:
        """What was computed of the record and is still held by someone."""
        return [each for ref in self.of_record.values() if (each := ref()) is not None]

    @staticmethod
    def _remember(known: dict[int, weakref.ref[Tensor]], values: Iterable[Tensor]) -> None:
        for value in values:
            known[id(value)] = weakref.ref(value, functools.partial(_forget, known, id(value)))


def _forget(known: dict[int, Any], key: int, _: Any) -> None:
    known.pop(key, None)


def _written(name: str, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that a function of this name writes into."""
    given = tensors_of(kwargs.get("out"))
    in_place = name in _WRITES or (name.endswith("_") and not name.endswith("__"))
    in_place &= name != "requires_grad_"
    return given + tensors_of(args[:1] if in_place or kwargs.get("inplace") else ())


def _bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, *args: Any, **kwargs: Any
) -> Tensor:
    """torch's embedding_bag of rows of indices, by operations with a rule."""
    names = "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "per_sample_weights"
    given = dict(zip((*names, "include_last_offset", "padding_idx"), args, strict=False)) | kwargs
    mode, padding, scales = (given.get(n) for n in ("mode", "padding_idx", "per_sample_weights"))
    if offsets is not None or input.dim() != 2 or mode == "max":
        found = "embedding_bag with offsets or mode='max'"
        raise InputError("", found, "one row of indices a record, and mode sum or mean")
    rows = F.embedding(input, weight, padding)
    used = torch.ones_like(input, dtype=rows.dtype) if padding is None else (input != padding)
    used = used.to(rows.dtype)
    weights = used if scales is None else used * scales
    total = (rows * weights.unsqueeze(-1)).sum(1)
    return total if mode == "sum" else total / used.sum(1, keepdim=True).clamp_min(1)


def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    """torch's bilinear as a product with the weight."""
    pairs = input1.unsqueeze(-1) * input2.unsqueeze(-2)
    return F.linear(pairs.flatten(-2), weight.flatten(1), bias)


def _gaussian_nll(
    input: Tensor,
    target: Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """torch's, which reads whether a variance is negative."""
    var = torch.as_tensor(var, dtype=input.dtype, device=input.device)
    if var.dim() == input.dim() - 1:
        var = var.unsqueeze(-1)
    var = var + (var.clamp_min(eps) - var).detach()
    loss = 0.5 * (var.log() + (input - target).square() / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return {"mean": loss.mean, "sum": loss.sum}.get(reduction, lambda: loss)()


def _masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """torch's, by indices."""
    mask, input = torch.broadcast_tensors(mask, input)
    at = (mask.flatten().cumsum(0) - 1).clamp_min(0)
    return torch.where(mask, source.flatten()[at].view(input.shape), input)


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """torch's, which reads the number of classes from the record where it is not told."""
    if num_classes < 0:
        found = "one_hot without the number of classes, which is read from the record"
        raise InputError("", found, "F.one_hot(x, num_classes)")
    return F.one_hot(tensor, num_classes)


def _refused(found: str, allowed: str) -> Callable[..., Any]:
    """A function that says what to write in its place."""

    def refuse(*_: Any, **__: Any) -> None:
        raise InputError("", found, allowed)

    return refuse


def _detached(value: Tensor) -> Tensor:
    """A detached copy, which tells this from what autograd detaches for a gradient inside."""
    copied: Tensor = aten.detach_copy.default(value.detach())
    return copied


def _requires_grad(value: Tensor, wanted: bool = True) -> Tensor:
    """torch's within torch.func.grad; without a gradient inside it says nothing of parameters."""
    return value.requires_grad_(wanted) if _in_gradient() else value


def _in_gradient() -> bool:
    """Whether torch.func.grad, or what is made of it, calls."""
    top = torch._C._functorch.peek_interpreter_stack()
    return top is not None and bool(top.key() == torch._C._functorch.TransformType.Grad)


def _inner_gradient(*args: Any, **kwargs: Any) -> Any:
    """torch.autograd.grad, as torch.func.grad calls it."""
    callers = (frame.f_code for frame, _ in traceback.walk_stack(None))
    if not (_in_gradient() or any(code is _autograd_grad.__code__ for code in callers)):
        raise InputError("", "torch.autograd.grad in the forward pass", _INNER_GRADIENT)
    return torch.autograd.grad(*args, **kwargs)


# What is called in place of functions of torch.
_IN_PLACE_OF: dict[Any, Callable[..., Any]] = {
    F.embedding_bag: _bag,
    F.bilinear: _bilinear,
    F.one_hot: _one_hot,
    F.gaussian_nll_loss: _gaussian_nll,
    torch.masked_scatter: _masked_scatter,
    Tensor.masked_scatter: _masked_scatter,
    F.ctc_loss: _refused(
        "ctc_loss, whose result is as large as a record's lengths say",
        "a sum over paths in torch.logsumexp, step by step, with lengths as a mask",
    ),
    Tensor.requires_grad_: _requires_grad,
    torch.autograd.grad: _inner_gradient,
    Tensor.backward: _refused("backward() in the forward pass", _INNER_GRADIENT),
    # Otherwise its gradient would be the tensor's own.
    **dict.fromkeys((_DATA.__get__, Tensor.detach, torch.detach), _detached),
    **dict.fromkeys((aten.detach, aten.detach.default), _detached),
    **dict.fromkeys(
        (_DATA.__set__, Tensor.set_, Tensor.detach_, torch.detach_),
        _refused("a tensor that is given other numbers or detached in place", ".detach(), a copy"),
    ),
    _GRAD_FN.__get__: _refused(
        "grad_fn, which a hook could change", "gradients as torch computes them"
    ),
}


def _without_gradient(value: Tensor) -> Tensor:
    return _detached(value) if value.is_floating_point() or value.is_complex() else value


class _Where:
    """The module that is being called: after an error, the one that raised it."""

    def __init__(self, model: nn.Module):
        self.names = {id(module): name for name, module in model.named_modules()}
        self.within: list[nn.Module] = []

    def __enter__(self) -> None:
        enter = modules.register_module_forward_pre_hook(self._enter)
        leave = modules.register_module_forward_hook(self._leave)
        self.hooks = enter, leave

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()
        fx_traceback.current_meta.pop("custom", None)

    def _enter(self, module: nn.Module, _: Any) -> None:
        self.within.append(module)
        self._tell()

    def _leave(self, module: nn.Module, *_: Any) -> None:
        self.within.pop()
        self._tell()

    def _tell(self) -> None:
        """Write the module's name at the nodes that follow."""
        fx_traceback.current_meta["custom"] = {"where": self.name()}

    def name(self) -> str:
        """In words."""
        if not self.within:
            return "loss" if self.names else "model"
        module = self.within[-1]
        name = self.names.get(id(module), "")
        place = f"layer {name}" if name else "model"
        return f"{place} ({type(module).__name__})"


@contextlib.contextmanager
def _in_place_of(
    model: nn.Module, values: dict[str, Tensor]
) -> Iterator[Callable[[], dict[str, Tensor]]]:
    """Within, the model has these tensors for its own, also where it holds one under two names.

    Yields a function that says what its buffers have become. Afterwards every module has the
    attributes that it had before.
    """
    known = dict(model.named_parameters()) | dict(model.named_buffers())
    by_id = {id(value): values[name] for name, value in known.items()}
    before = [(module, dict(vars(module))) for module in model.modules()]
    places = (place for each, _ in before for place in (each._parameters, each._buffers))
    held: list[tuple[dict[str, Any], Any]] = [(place, dict(place)) for place in places]
    for place, values_before in held:
        for name, value in values_before.items():
            if value is not None:
                place[name] = by_id[id(value)]

    names = [name.rpartition(".") for name, _ in model.named_buffers()]

    def buffers_now() -> dict[str, Any]:
        return {
            f"{path}{dot}{name}": model.get_submodule(path)._buffers[name]
            for path, dot, name in names
        }

    try:
        yield buffers_now
    finally:
        for module, attributes in before:
            vars(module).clear()
            vars(module).update(attributes)
        for place, values_before in held:
            place.clear()
            place.update(values_before)


@contextlib.contextmanager
def _plain_operations(plain_device: bool) -> Iterator[None]:
    """Within, torch computes by operations that have a rule for batches and for gradients.

    Functions with gradients of their own and hooks on gradients are refused: the graph would have
    the gradients of its operations in their place.
    """
    apply, hook = torch.autograd.Function.__dict__["apply"], torch.Tensor.register_hook
    fast, dnn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()

    def refuse(kind: type, *_: Any, **__: Any) -> None:
        found = f"{kind.__name__}, {_OWN_BACKWARD}"
        if kind.__name__ == "BackwardHookFunction":
            found = "a backward hook"
        elif kind.__name__ == "CheckpointFunction":
            found = "checkpoint(use_reentrant=True)"
        raise InputError("model", found, _KNOWN)

    def refuse_hook(*_: Any) -> None:
        raise InputError("model", "a hook on a gradient", "gradients as torch computes them")

    torch.autograd.Function.apply = classmethod(refuse)
    torch.Tensor.register_hook = refuse_hook  # type: ignore[method-assign]
    torch.backends.mha.set_fastpath_enabled(False)
    torch._C._set_mkldnn_enabled(False)
    checks = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    # torch's transformers read a mask's values to detect a causal one; it only speeds them up.
    layers = torch.nn.modules.transformer
    causal, layers._detect_is_causal_mask = layers._detect_is_causal_mask, _is_said_causal
    # Packages that look at values of a mask, to skip it, do not where a graph is made.
    compiling, torch.compiler._is_compiling_flag = torch.compiler._is_compiling_flag, True
    try:
        math = contextlib.nullcontext() if plain_device else sdpa_kernel(SDPBackend.MATH)
        # What is compiled is traced as it was written.
        eager = torch.compiler.set_stance("force_eager")
        with math, eager, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using `torch.compile")
            yield
    finally:
        torch.compiler._is_compiling_flag = compiling
        layers._detect_is_causal_mask = causal
        torch.distributions.Distribution.set_default_validate_args(checks)
        torch._C._set_mkldnn_enabled(dnn)
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.Tensor.register_hook = hook  # type: ignore[method-assign]
        torch.autograd.Function.apply = apply


def _is_said_causal(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
    return is_causal is True


def _refusal(where: str, error: Exception) -> InputError:
    """What an error of a trace says to whom wrote the network."""
    line = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    if isinstance(error, DynamicOutputShapeException):
        if error.func is aten._pack_padded_sequence.default:
            return InputError(where, "a packed sequence", _PACKED)
        found = f"{error.func}, whose result is as large as a record's values say"
        return InputError(where, found, _INDEX)
    if any(text in line for text in _OWN_FUNCTION):
        return InputError(where, _OWN_BACKWARD, _KNOWN)
    if "non-functional tensor" in line:
        found = "a write into a tensor that is no part of the network"
        return InputError(where, found, "buffers, and no writes into anything else")
    if isinstance(error, DataDependentOutputException) or any(text in line for text in _READING):
        found = "a value of a record, or of a tensor that depends on it, read into Python"
        return InputError(where, found, _WITHOUT_READING)
    return InputError(where, f"an error as a record's loss is traced: {line}", "a call without one")


def _refuse_layers(model: nn.Module) -> None:
    """InputError for what cannot be called on one record, or has no tensors to call it with."""
    for name, layer in model.named_modules():
        where = f"layer {name or 'model'} ({type(layer).__name__})"
        if isinstance(layer, torch.jit.ScriptModule):
            raise InputError(where, "TorchScript", "the module that it was made from")
        if any(map(torch.nn.parameter.is_lazy, layer.parameters(False))):
            allowed = "a layer with its shape; zeros passed through the network set it"
            raise InputError(where, "parameters without a shape", allowed)
        mixes = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if mixes and (layer.training or layer.running_mean is None):
            found = "statistics over the batch, so that one record moves the others' gradients"
            raise InputError(where, found, _BATCH_NORM)
        if layer._backward_hooks or layer._backward_pre_hooks:
            raise InputError(where, "a backward hook", "gradients as torch computes them")
        for key, value in [*layer.named_parameters("", False), *layer.named_buffers("", False)]:
            if type(value) not in (nn.Parameter, Tensor, nn.Buffer):
                found = f"{key}, a {type(value).__name__}, whose code would run at each step"
                raise InputError(where, found, "parameters and buffers of torch's own classes")
            if value.is_complex() and isinstance(value, nn.Parameter):
                allowed = "its real and imaginary parts, joined by torch.view_as_complex"
                raise InputError(where, f"{key}, a complex parameter", allowed)
        hooks = (
            v._backward_hooks or v._post_accumulate_grad_hooks for v in layer.parameters(False)
        )
        if any(hooks):
            raise InputError(where, "a hook on a gradient", "gradients as torch computes them")


def _drop_writes(graph: Graph, own: dict[Node, str], parameters: Sequence[str]) -> None:
    """Drop the last writes into inputs; InputError where one is a parameter or a constant."""
    for node in list(graph.nodes):
        if not _is_mutable(node):
            continue
        target = node.args[0]
        assert isinstance(target, Node)
        if not _writes_input(node):
            found = f"{node.target} writes into a tensor that is no part of the network"
            raise InputError("model", found, "buffers, and no writes into anything else")
        if own.get(target) in parameters:
            found = f"a forward pass that writes into the parameter {own[target]}"
            raise InputError("model", found, "parameters that only the training changes")
        _put(graph, node, node.args[1])


def _put(graph: Graph, node: Node, made: Any) -> None:
    """Put a node in the place of another one, or of a tuple one for each of its results."""
    if isinstance(made, tuple):
        for user in list(node.users):
            _put(graph, user, made[user.args[1]])  # type: ignore[index]
    else:
        node.replace_all_uses_with(made)
    graph.erase_node(node)


def _drop_profiling(graph: Graph) -> None:
    """Drop the names that a profiler would show, as those of DataParallel: they compute nothing."""
    for node in reversed(list(graph.nodes)):
        if getattr(node.target, "namespace", "") == "profiler":
            graph.erase_node(node)


def _refuse_operations(graph: Graph) -> None:
    """InputError for operations that are not torch's: their code runs at each step, on a batch."""
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        space = getattr(node.target, "namespace", "")
        if not isinstance(node.target, torch._ops.OpOverload) or space not in _OPERATIONS:
            found = f"{node.target}, an operation whose code runs at each step and sees the batch"
            raise InputError(where_of(node), found, "operations of torch alone")
        if node.target in _PRODUCTS:
            kinds = dict.fromkeys(f"{each.meta['val'].dtype}" for each in node.all_input_nodes)
            if len(kinds) > 1:
                allowed = "numbers of one type, such as x.float()"
                raise InputError(where_of(node), f"a product of {' and '.join(kinds)}", allowed)
        if node.target is aten.embedding.default:
            if any(node.args[3:4]):
                raise InputError(where_of(node), "scale_grad_by_freq", "gradients of the loss")
            # Without the flag for sparse gradients.
            node.args = node.args[:3]


def _drop_detached(graph: GraphModule) -> None:
    """Drop what autograd detaches for a gradient inside, which the graph is to differentiate."""
    for node in graph.graph.find_nodes(op="call_function", target=aten.detach.default):
        _put(graph.graph, node, node.args[0])
    graph.recompile()


def _writes_input(node: Node) -> bool:
    target = node.args[0]
    copies = node.target is aten.copy_.default
    return copies and isinstance(target, Node) and target.op == "placeholder"


def _is_mutable(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _without_copies(graph: Graph) -> None:
    """Write what is copied in place of the copies, which have no rule for batches."""
    for node in graph.find_nodes(op="call_function", target=aten.copy.default):
        to, source = node.args[0].meta["val"], node.args[1]
        with graph.inserting_before(node):
            if source.meta["val"].dtype != to.dtype:
                source = graph.call_function(aten._to_copy.default, (source,), {"dtype": to.dtype})
            if source.meta.get("val") is None or source.meta["val"].shape != to.shape:
                source = graph.call_function(aten.expand.default, (source, list(to.shape)))
        _put(graph, node, source)


def _fused(graph: Graph, parameters: Sequence[Node]) -> None:
    """Write attention out where its mask depends on a parameter, of which it gives no gradient."""
    learned = reached(graph, parameters)
    target = aten._scaled_dot_product_flash_attention_for_cpu.default
    for node in graph.find_nodes(op="call_function", target=target):
        query, key, value = node.args[:3]
        mask, scale = node.kwargs.get("attn_mask"), node.kwargs.get("scale")
        if mask not in learned:
            continue
        size = query.meta["val"].shape[-1]
        call = graph.call_function
        with graph.inserting_before(node):
            scaled = call(aten.mul.Tensor, (query, size**-0.5 if scale is None else scale))
            turned = call(aten.transpose.int, (key, -2, -1))
            scores = call(aten.add.Tensor, (call(aten.matmul.default, (scaled, turned)), mask))
            shares = call(aten._safe_softmax.default, (scores, -1))
            output = call(aten.matmul.default, (shares, value))
            # In memory as the fused operation has it: positions before heads.
            turned = call(aten.transpose.int, (output, 1, 2))
            turned = call(aten.clone.default, (turned,), {"memory_format": torch.contiguous_format})
            output = call(aten.transpose.int, (turned, 1, 2))
        _put(graph, node, (output, output))


def _with_draws(graph: Graph) -> tuple[Draw, ...]:
    """Make inputs of random operations, behind the others; InputError for those without a rule."""
    draws: list[Draw] = []
    last = graph.find_nodes(op="placeholder")[-1]
    for node in list(graph.nodes):
        random_one = isinstance(node.target, torch._ops.OpOverload) and (
            torch.Tag.nondeterministic_seeded in node.target.tags
        )
        attention = aten._scaled_dot_product_flash_attention_for_cpu.default
        if not random_one or (node.target is attention and not any(node.args[3:4])):
            continue
        name, value = node.target.overloadpacket.__name__, node.meta["val"]
        value = value[0] if isinstance(value, tuple | list) else value
        kind = NORMAL if name.startswith(("randn", "normal")) else UNIFORM
        with graph.inserting_after(last):
            last = graph.placeholder(f"draws_{len(draws)}")
        draws.append(Draw(kind, tuple(value.shape)))
        with graph.inserting_before(node):
            made = _of_draws(graph, node, name, last, value.dtype)
        _put(graph, node, made)
    return tuple(draws)


def _of_draws(graph: Graph, node: Node, name: str, draws: Node, dtype: torch.dtype) -> Any:
    """What a random operation gives, of numbers that are drawn before."""
    call, args = graph.call_function, tuple[Any, ...](node.args)

    def cast(value: Node) -> Node:
        return call(aten._to_copy.default, (value,), {"dtype": dtype})

    if name in ("rand", "rand_like", "randn", "randn_like"):
        return cast(draws)
    if name == "bernoulli":
        below = aten.lt.Scalar if len(args) > 1 else aten.lt.Tensor
        return cast(call(below, (draws, args[-1])))
    if name == "native_dropout" and args[2]:
        kept = call(aten.ge.Scalar, (draws, args[1]))
        scaled = call(aten.mul.Tensor, (args[0], cast(kept)))
        return call(aten.div.Scalar, (scaled, 1 - args[1] or 1.0)), kept
    if name in ("uniform", "normal_functional"):
        low, high = args[1:3] + (0.0, 1.0)[len(args) - 1 :]
        scale = high - low if name == "uniform" else high
        return cast(call(aten.add.Scalar, (call(aten.mul.Scalar, (draws, scale)), low)))
    if name == "normal":
        mean, std = args[:2] + (0.0, 1.0)[len(args) :]
        scaled = call(torch.mul, (draws, std))
        return cast(call(torch.add, (scaled, mean)))
    if name == "exponential":
        # -log(1 - u): u is below 1.
        logs = call(aten.log1p.default, (call(aten.neg.default, (draws,)),))
        return cast(call(aten.div.Scalar, (logs, -(args[1] if len(args) > 1 else 1.0))))
    if name in ("randint", "randint_like"):
        first = 1 if name == "randint_like" else 0
        bounds = node.target._overloadname.startswith("low")  # type: ignore[union-attr]
        low, high = (args[first], args[first + 1]) if bounds else (0, args[first])
        scaled = call(aten.mul.Scalar, (draws, high - low))
        whole = call(aten.clamp_max.default, (call(aten.floor.default, (scaled,)), high - low - 1))
        return cast(call(aten.add.Scalar, (whole, low)))
    if name == "rrelu_with_noise_functional":
        x, _, low, high, training = (*args, *(0.125, 1 / 3, False)[len(args) - 2 :])[:5]
        if training:
            slopes = call(aten.add.Scalar, (call(aten.mul.Scalar, (draws, high - low)), low))
            noise = call(aten.where.ScalarOther, (call(aten.le.Scalar, (x, 0)), cast(slopes), 1.0))
            return call(aten.mul.Tensor, (x, noise)), noise
    allowed = "dropout, bernoulli, rand, randn, randint, exponential_ or gumbel_softmax"
    found = f"{node.target}, random numbers without a rule"
    raise InputError(where_of(node), found, allowed)


def where_of(node: Node) -> str:
    """The module that a node was written in."""
    told: dict[str, str] = node.meta.get("custom") or {}
    return node.meta.get("where") or told.get("where", "model")


def _within_size(graph: Graph) -> None:
    """Write ends of slices as torch's batching rules take them: no more than there is."""
    for target in (aten.slice.Tensor, aten.slice_scatter.default):
        first = 1 if target is aten.slice.Tensor else 2
        for node in graph.find_nodes(op="call_function", target=target):
            dim, start, end = (
                *node.args[first : first + 3],
                *(0, None, None)[len(node.args) - first :],
            )[:3]
            size = node.args[0].meta["val"].shape[dim]
            if isinstance(end, int) and end > size:
                node.args = (*node.args[:first], dim, start, size, *node.args[first + 3 :])


def _filled(graph: Graph) -> None:
    """Replace uninitialised memory by zeros: it may hold numbers of other records."""
    for node in list(graph.nodes):
        if node.target in _UNFILLED:
            value = node.meta["val"]
            kind = {"dtype": value.dtype, "device": value.device}
            with graph.inserting_before(node):
                _put(graph, node, graph.call_function(aten.full.default, ([*value.shape], 0), kind))


def _constants(
    graph: GraphModule, model: nn.Module, loss: Any, state: Sequence[tuple[str, Tensor]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Copy what the trace met as a tensor with values; by name as far as it has one.

    state: parameters and buffers, which the network may also hold in lists or closures: there the
    graph reads its input.
    """
    names = {id(tensor): name for name, tensor in [*_held("loss", loss), *_held("model", model)]}
    holders = graph.graph.find_nodes(op="placeholder")
    holder_of = {id(value): node for (_, value), node in zip(state, holders, strict=False)}
    found: dict[str, Tensor] = {}
    origins: dict[str, Tensor] = {}
    held: dict[str, Any] = {}
    for node in graph.graph.find_nodes(op="get_attr"):
        key = str(node.target)
        tensor = held.setdefault(key, getattr(graph, key, None))
        if not isinstance(tensor, Tensor):
            if callable(tensor):
                found_here = "torch.cond, or another operation with functions inside"
                raise InputError(where_of(node), found_here, "torch.where of both results")
            found_here = f"a {type(tensor).__name__} in the forward pass"
            raise InputError(where_of(node), found_here, "operations of torch, and its own draws")
        if id(tensor) in holder_of:
            _put(graph.graph, node, holder_of[id(tensor)])
            continue
        name = names.get(id(tensor), key.lstrip("_"))
        if origins.get(name, tensor) is not tensor:
            name += key
        for other, value in state:
            if overlap(tensor, value):
                found_here = f"a view of {other}, made before the forward pass"
                raise InputError(name, found_here, f"{other} itself, or a copy")
        if name not in found:
            found[name], origins[name] = tensor.detach().clone(), tensor
        if hasattr(graph, key):
            delattr(graph, key)
        setattr(graph, key, found[name])
    return found, origins


def _held(
    name: str, value: Any, seen: dict[int, Any] | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Tensors that an object holds in attributes, containers and what its functions enclose."""
    seen = {} if seen is None else seen
    kind = value if isinstance(value, FunctionType) else type(value)
    # Not into the machinery of a compiled function.
    torchs = "torch." if isinstance(value, FunctionType) else "torch._"
    inner = f"{kind.__module__}.".startswith(torchs) and not isinstance(value, Tensor | nn.Module)
    if id(value) in seen or inner:
        return
    # Held, so that no other object gets its address.
    seen[id(value)] = value
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, part in list(value.items()):
            own = isinstance(key, str) and key in ("_parameters", "_buffers", "_modules")
            yield from _held(name if own else f"{name}.{key}", part, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for number, part in enumerate(list(value)):
            yield from _held(f"{name}.{number}", part, seen)
    elif isinstance(value, FunctionType):
        inside = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        for key, cell in inside:
            with contextlib.suppress(ValueError):
                yield from _held(f"{name}.{key}", cell.cell_contents, seen)
        for key in value.__code__.co_names:
            if isinstance(part := value.__globals__.get(key), Tensor | list | dict | FunctionType):
                yield from _held(key, part, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type | type(torch)):
        yield from _held(name, vars(value), seen)
        if isinstance(method := getattr(type(value), "forward", None), FunctionType):
            yield from _held(name, method, seen)


def _refuse_new_attributes(
    model: nn.Module, before: dict[str, dict[str, Any]], watch: _Watch
) -> None:
    """InputError for an attribute that now holds a tensor of the record."""
    for name, module in model.named_modules():
        known = before.get(name, {})
        for key, value in vars(module).items():
            if value is known.get(key):
                continue
            if any(id(each) in watch.of_record for _, each in _held(key, value)):
                where = f"{name}.{key}" if name else key
                raise InputError("model", f"a tensor of a record is kept in {where}", _KEEPS)


def _refuse_kept(watch: _Watch, model: nn.Module, loss: Any) -> None:
    """InputError that names who still holds something of the record."""
    if watch.alive():
        gc.collect()
    for kept in watch.alive():
        everything = [*_held("model", model), *_held("loss", loss)]
        elsewhere = "a list, hook or variable outside of the network"
        where = next((name for name, each in everything if each is kept), elsewhere)
        raise InputError("model", f"a tensor of a record is kept in {where}", _KEEPS)


def _tidy(graph: Graph) -> None:
    """Drop what no output needs, and what tracing left at the nodes."""
    drop_unused(graph)
    for node in graph.nodes:
        value = node.meta.get("val")
        shape = {"shape": tuple(value.shape)} if isinstance(value, Tensor) else {}
        node.meta = {**shape, "where": where_of(node)}
    graph.lint()


def layer_of(model: nn.Module, name: str) -> str:
    """The module of a parameter or buffer, in words."""
    place = name.rpartition(".")[0]
    return f"layer {place or 'model'} ({type(model.get_submodule(place)).__name__})"


def _last_size(output: Any) -> int:
    """Size of the last dimension of the output, or of its logits."""
    output = getattr(output, "logits", output)
    return output.shape[-1] if isinstance(output, Tensor) and output.dim() else 1


def _python_draws() -> Any:
    legacy: Any = np.random.get_state()  # noqa: NPY002  (what a network may draw from)
    kind, keys, *rest = legacy
    return random.getstate(), kind, keys.tobytes(), rest
