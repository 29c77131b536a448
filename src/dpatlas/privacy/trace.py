"""The loss of one record as a graph: what a private step computes of a record, and nothing else.

`trace_record` calls the user's network and loss once, on a record that has shapes and no numbers,
and writes down the operations. Every step then runs this graph: the user's Python is not called
again, so what a global, a hook, a list or a class becomes later has no effect. The graph has one
record as its input, so nothing of another record can be in it. Refused, in one line that names the
module, is what would get round that: reading a value of the record into Python, keeping a tensor of
it, writing it into a buffer or parameter, and gradients by other rules than those of the graph.
"""

import contextlib
import gc
import hashlib
import random
import re
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
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.distributions import Distribution
from torch.func import functionalize, vmap
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode

from dpatlas.errors import InputError
from dpatlas.models.precision import exact

aten = torch.ops.aten
# A checkpoint goes on with another device.
_DEVICE = re.compile(r"device\(type='\w+'(, index=\d+)?\)")
# What random numbers of a record are drawn from.
UNIFORM, NORMAL = "uniform", "normal"
# Operations that are written as others, which have a rule for batches.
_IN_PARTS = (aten._weight_norm_interface, aten.native_batch_norm, aten._native_batch_norm_legit)
_WITHOUT_READING = "torch.where in place of a branch, and no numbers in Python"
_TORCH = "aten", "prims"
_READS = ("numpy", "__array__", "tolist", "__dlpack__", "data_ptr", "untyped_storage")
_OWN_GRADIENT = "an autograd.Function with a backward of its own"
_KNOWN_GRADIENTS = (
    "operations of torch, whose gradients torch knows; checkpoint(use_reentrant=False)"
)
_KEEPS = "a forward pass that keeps nothing from one call to the next"
_BATCH_NORM = "GroupNorm (dpatlas.privacy.to_group_norm(model) replaces it), or evaluation mode"


@dataclass(frozen=True)
class Draw:
    """Random numbers that a record's graph takes, of this shape, uniform on [0, 1) or normal."""

    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class RecordGraph:
    """The loss of one record, `loss(*parameters, *buffers, *leaves, *draws)`: one number.

    parameters, buffers: the model's own tensors by name, read anew at each step. leaves: tensors of
    a record and its target, in the order of `torch.utils._pytree`: shapes (1, ...) and types.
    draws: what random operations became. `updates`, called with parameters and buffers, gives the new values of
    the buffers `updated`, which follow from those alone. constants: tensors that network or loss
    reached otherwise, as copies, by the name under which they were found; origins: what they are
    copies of. outputs: size of the last
    dimension of a record's output. digest: of graph, constants and shapes, for checkpoints.
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
            for name, value in zip(self.updated, self.updates(*self.state()), strict=True):
                self.buffers[name].copy_(value)


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
        watch = notes["watch"] = _Watch(of_record)
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
        if not isinstance(value, Tensor) or (one_number and value.numel() != 1):
            what = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            allowed = "one value a record (reduction='none', then a mean over its own values)"
            raise InputError("loss", f"a result of shape {what} for one record", allowed)
        return [value.reshape(()) if one_number else value, *(found[name] for name in buffers)]

    where, drawn = _Where(model), _python_draws()
    try:
        with where, exact(), _plain_operations(), torch.enable_grad(), fake:
            table = get_decompositions(_IN_PARTS)
            graph = make_fx(functionalize(one, remove="mutations"), table)(*made_up)
            if any(map(_is_mutable, graph.graph.nodes)):
                # What torch's recurrent layers write in place inside. Without a table of its own,
                # make_fx writes down a view that has a gradient for what is detached.
                graph = make_fx(functionalize(graph, remove="mutations"), table)(*made_up)
    except InputError as error:
        raise InputError(error.where or where.name(), error.found, error.allowed) from None
    except Exception as error:  # a stranger's network may raise anything
        raise _refusal(where.name(), error) from None
    if _python_draws() != drawn:
        allowed = "those of torch, which are drawn anew at each step"
        raise InputError("model", "random numbers of Python or numpy in the forward pass", allowed)
    watch: _Watch = notes.pop("watch")
    del made_up
    constants, origins = _constants(graph, model, loss)
    _refuse_kept(watch, model, loss)

    nodes = graph.graph
    _refuse_operators(nodes)
    holders = list(nodes.find_nodes(op="placeholder"))
    own, of_record = holders[: len(names)], holders[len(names) :]
    _drop_writes(nodes, dict(zip(own, names, strict=True)), list(parameters))
    _without_copies(nodes)
    draws = _with_draws(nodes)
    moved_by_records = reached(nodes, [*of_record, *nodes.find_nodes(op="placeholder")[len(holders) :]])
    (output,) = nodes.find_nodes(op="output")
    value, *after = output.args[0]
    new = {
        name: node
        for name, node, before in zip(buffers, after, own[len(parameters) :], strict=True)
        if node is not before
    }
    for name, node in new.items():
        if node in moved_by_records:
            where_from = _layer(model, name)
            raise InputError(where_from, f"{name}, a buffer that a record moves", _BATCH_NORM)
    updates = None
    if new:
        output.args = (list(new.values()),)
        part = Graph()
        part.output(part.graph_copy(nodes, {}))
        for node in part.find_nodes(op="placeholder")[len(names) :]:
            part.erase_node(node) if not node.users else None
        _tidy(part)
        for node in part.find_nodes(op="placeholder")[len(names) :]:
            part.erase_node(node)
        updates = GraphModule(graph, part)
    output.args = (value,)
    _tidy(nodes)
    graph.recompile()
    told = [_DEVICE.sub("", graph.code), *(f"{each.dtype} {tuple(each.shape)}" for each in (*state, *leaves))]
    digest = hashlib.sha256("\n".join(told).encode())
    for name, tensor in constants.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + _bytes(tensor))
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
    state, leaves = graph.state(), len(graph.leaves)
    if graph.draws:
        raise InputError("model", "random numbers in the forward pass", "a network without them")
    each = vmap(graph.loss, in_dims=(*[None] * len(state), *[0] * leaves))

    def outputs(x: Any) -> Tensor:
        found: Tensor = each(*state, *(leaf.unsqueeze(1) for leaf in pytree.tree_leaves(x)))
        return found.flatten(0, 1)

    return outputs


def trace_views(apply: Callable[[Tensor, Tensor], Tensor], x: Tensor, parameters: Tensor) -> Any:
    """A function that gives the views of many records as apply(x, parameters) gives one record's.

    x (1, ...), parameters (1, ...): only shapes and types are used. The function takes (records,
    ...) of both and gives (records, views, ...). Raises InputError as `trace_record`.
    """

    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.none = nn.Parameter(torch.zeros(1, device=x.device))

        def forward(self, rows: Tensor, parameters: Tensor) -> Tensor:
            return apply(rows, parameters)

    try:
        graph = trace_record(Views(), lambda views, _: views, (x, parameters), None, one_number=False)
    except InputError as error:
        raise InputError(error.where.replace("model", "augmentation"), error.found, error.allowed) from None
    if graph.draws:
        raise InputError("augmentation", "random numbers in apply", "`draw`, whose draws are keyed")
    each = vmap(graph.loss, in_dims=(None, 0, 0))

    def views_of(x: Tensor, parameters: Tensor) -> Tensor:
        found: Tensor = each(*graph.state(), x.unsqueeze(1), parameters.unsqueeze(1))
        return found

    views_of.graph = graph  # type: ignore[attr-defined]
    return views_of


def reached(graph: Graph, sources: Iterable[Node]) -> set[Node]:
    """The nodes that depend on any of the sources, and these."""
    found = set(sources)
    for node in graph.nodes:
        if any(each in found for each in node.all_input_nodes):
            found.add(node)
    return found


class _Watch(TorchFunctionMode):
    """Sees each call of torch while a record's loss is traced.

    Results under `no_grad` become constants of the gradient, which a graph of operations would not
    show, and what was computed of the record is remembered, without holding it.
    """

    def __init__(self, of_record: Sequence[Tensor]):
        super().__init__()
        self.of_record: dict[int, weakref.ref[Tensor]] = {}
        for each in of_record:
            self._remember(each)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """The call's result, without a gradient where autograd is off."""
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in _READS and args and isinstance(args[0], Tensor):
            raise InputError("", f"the numbers of a tensor read by .{name}()", _WITHOUT_READING)
        if function is F.embedding_bag:
            function = _bag
        result = function(*args, **kwargs)
        tensors = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        if any(id(each) in self.of_record for each in tensors):
            written = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
            for each in (*pytree.tree_leaves(result), *(tensors[:1] if written else ())):
                if isinstance(each, Tensor):
                    self._remember(each)
        if not torch.is_grad_enabled() and _is_new(result, tensors):
            result = pytree.tree_map_only(Tensor, _without_gradient, result)
            if any(id(each) in self.of_record for each in tensors):
                for each in pytree.tree_leaves(result):
                    if isinstance(each, Tensor):
                        self._remember(each)
        return result

    def alive(self) -> list[Tensor]:
        """What was computed of the record and is still held by someone."""
        return [each for ref in self.of_record.values() if (each := ref()) is not None]

    def _remember(self, value: Tensor) -> None:
        key = id(value)
        self.of_record[key] = weakref.ref(value, lambda _: self.of_record.pop(key, None))


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


def _is_new(result: Any, tensors: Sequence[Tensor]) -> bool:
    """Whether a result is no argument that was changed in place."""
    return not any(result is each for each in tensors)


def _without_gradient(value: Tensor) -> Tensor:
    return value.detach() if value.is_floating_point() else value


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

    def _enter(self, module: nn.Module, _: Any) -> None:
        self.within.append(module)

    def _leave(self, module: nn.Module, *_: Any) -> None:
        self.within.pop()

    def name(self) -> str:
        """In words."""
        if not self.within:
            return "loss" if self.names else "model"
        module = self.within[-1]
        name = self.names.get(id(module), "")
        return f"layer {name} ({type(module).__name__})" if name else f"model ({type(module).__name__})"


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
    held = [(module._parameters, dict(module._parameters)) for module, _ in before]
    held += [(module._buffers, dict(module._buffers)) for module, _ in before]
    for place, values_before in held:
        for name, value in values_before.items():
            if value is not None:
                place[name] = by_id[id(value)]  # type: ignore[assignment]

    def buffers_now() -> dict[str, Tensor]:
        return {
            name: model.get_submodule(name.rpartition(".")[0])._buffers[name.rpartition(".")[2]]
            for name in dict(known)
            if name in buffers
        }

    buffers = dict(model.named_buffers())
    buffers = {name for name in known if name in buffers}
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
def _plain_operations() -> Iterator[None]:
    """Within, torch computes by operations that have a rule for batches and for gradients.

    Functions with gradients of their own and hooks on gradients are refused: the graph would have
    the gradients of its operations in their place.
    """
    apply, hook = torch.autograd.Function.__dict__["apply"], torch.Tensor.register_hook
    fast, dnn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    checks = Distribution._validate_args

    def refuse(kind: type, *_: Any, **__: Any) -> None:
        found = f"{kind.__name__}, {_OWN_GRADIENT}"
        if kind.__name__ == "BackwardHookFunction":
            found = "a backward hook"
        elif kind.__name__ == "CheckpointFunction":
            found = "checkpoint(use_reentrant=True)"
        raise InputError("", found, _KNOWN_GRADIENTS)

    def refuse_hook(*_: Any) -> None:
        raise InputError("model", "a hook on a gradient", "gradients as torch computes them")

    torch.autograd.Function.apply = classmethod(refuse)  # type: ignore[assignment]
    torch.Tensor.register_hook = refuse_hook  # type: ignore[assignment]
    torch.backends.mha.set_fastpath_enabled(False)
    torch._C._set_mkldnn_enabled(False)
    # Their checks read values, for nothing but an error.
    Distribution.set_default_validate_args(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        Distribution.set_default_validate_args(checks)
        torch._C._set_mkldnn_enabled(dnn)
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.Tensor.register_hook = hook
        torch.autograd.Function.apply = apply


def _refusal(where: str, error: Exception) -> InputError:
    """What an error of a trace says to whom wrote the network."""
    line = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    if isinstance(error, DynamicOutputShapeException):
        found = f"{error.func}, whose result is as large as a record's values say"
        return InputError(where, found, "torch.where, or a product with the mask")
    texts = ("unallocated storage", "value out of a tracing tensor", ".item()", "data-dependent", "Cannot access data")
    if "setup_context" in line or "custom_function_call" in line:
        return InputError(where, _OWN_GRADIENT, _KNOWN_GRADIENTS)
    if "mutating a non-functional tensor" in line:
        found = "a write into a tensor that is no part of the network"
        return InputError(where, found, "buffers, and no writes into anything else")
    if isinstance(error, DataDependentOutputException) or any(text in line for text in texts):
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
        if isinstance(layer, nn.Embedding) and (layer.max_norm or layer.scale_grad_by_freq):
            raise InputError(where, "max_norm or scale_grad_by_freq", "neither")


def _refuse_operators(graph: Graph) -> None:
    """InputError for operators of others: under vmap theirs may read across the records."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace not in _TORCH:
            raise InputError("model", f"the operator {node.target}", "operations of torch itself")


def _drop_writes(graph: Graph, own: dict[Node, str], parameters: Sequence[str]) -> None:
    """Drop the last writes into inputs; InputError where one is a parameter or a constant."""
    for node in list(graph.nodes):
        if not _is_mutable(node):
            continue
        target = node.args[0]
        assert isinstance(target, Node)
        if node.target is not aten.copy_.default or target.op != "placeholder":
            found = f"{node.target} writes into a tensor that is no part of the network"
            raise InputError("model", found, "buffers, and no writes into anything else")
        if own.get(target) in parameters:
            found = f"a forward pass that writes into the parameter {own[target]}"
            raise InputError("model", found, "parameters that only the training changes")
        node.replace_all_uses_with(node.args[1])  # type: ignore[arg-type]
        graph.erase_node(node)


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
        node.replace_all_uses_with(source)
        graph.erase_node(node)


def _with_draws(graph: Graph) -> tuple[Draw, ...]:
    """Make inputs of random operations, behind the others; InputError for those without a rule."""
    draws: list[Draw] = []
    last = graph.find_nodes(op="placeholder")[-1]
    for node in list(graph.nodes):
        random_one = isinstance(node.target, torch._ops.OpOverload) and (
            torch.Tag.nondeterministic_seeded in node.target.tags
        )
        if not random_one:
            continue
        name, value = node.target.overloadpacket.__name__, node.meta["val"]
        value = value[0] if isinstance(value, tuple | list) else value
        kind = NORMAL if name in ("randn", "randn_like", "normal_functional", "normal") else UNIFORM
        with graph.inserting_after(last):
            last = graph.placeholder(f"draws_{len(draws)}")
        draws.append(Draw(kind, tuple(value.shape)))
        with graph.inserting_before(node):
            made = _of_draws(graph, node, name, last, value.dtype)
        if isinstance(made, tuple):
            for user in list(node.users):
                user.replace_all_uses_with(made[user.args[1]])
                graph.erase_node(user)
        else:
            node.replace_all_uses_with(made)
        graph.erase_node(node)
    return tuple(draws)


def _of_draws(graph: Graph, node: Node, name: str, draws: Node, dtype: torch.dtype) -> Any:
    """What a random operation gives, of numbers that are drawn before."""
    call, args = graph.call_function, node.args

    def cast(value: Node) -> Node:
        return call(aten._to_copy.default, (value,), {"dtype": dtype})

    if name in ("rand", "rand_like", "randn", "randn_like"):
        return cast(draws)
    if name == "bernoulli" and len(args) > 1:
        return cast(call(aten.lt.Scalar, (draws, args[1])))
    if name == "bernoulli":
        return cast(call(aten.lt.Tensor, (draws, args[0])))
    if name == "native_dropout" and args[2]:
        kept = call(aten.ge.Scalar, (draws, args[1]))
        scaled = call(aten.mul.Tensor, (args[0], cast(kept)))
        return call(aten.div.Scalar, (scaled, 1 - args[1] or 1.0)), kept  # type: ignore[operator]
    if name in ("uniform", "normal_functional"):
        low, high = (*args[1:3], *(0.0, 1.0)[len(args) - 1 :])
        scale = high - low if name == "uniform" else high  # type: ignore[operator]
        return cast(call(aten.add.Scalar, (call(aten.mul.Scalar, (draws, scale)), low)))
    allowed = "dropout, bernoulli, rand and randn"
    raise InputError("model", f"{node.target}, random numbers without a rule", allowed)


def _constants(
    graph: GraphModule, model: nn.Module, loss: Any
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Copy what the trace met as a tensor with values; by name as far as it has one."""
    names = {id(tensor): name for name, tensor in [*_held("loss", loss), *_held("model", model)]}
    found: dict[str, Tensor] = {}
    origins: dict[str, Tensor] = {}
    for node in graph.graph.find_nodes(op="get_attr"):
        tensor = getattr(graph, str(node.target))
        name = names.get(id(tensor), str(node.target).lstrip("_"))
        if name not in found:
            found[name], origins[name] = tensor.detach().clone(), tensor
        # A parameter's place takes no plain tensor.
        delattr(graph, str(node.target))
        setattr(graph, str(node.target), found[name])
    return found, origins


def _held(name: str, value: Any, seen: dict[int, Any] | None = None) -> Iterator[tuple[str, Tensor]]:
    """Tensors that an object holds in attributes, containers and what its functions enclose."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return
    # Held, so that no other object gets its address.
    seen[id(value)] = value
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, part in list(value.items()):
            own = key in ("_parameters", "_buffers", "_modules")
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
        holders = [name for name, each in [*_held("model", model), *_held("loss", loss)] if each is kept]
        where = holders[0] if holders else "a list, hook or variable outside of the network"
        found = f"a tensor of a record is kept in {where}"
        raise InputError("model", found, _KEEPS)


def _tidy(graph: Graph) -> None:
    """Drop what no output needs, and what tracing left at the nodes."""
    graph.eliminate_dead_code()
    for node in graph.nodes:
        value = node.meta.get("val")
        node.meta = {"shape": tuple(value.shape)} if isinstance(value, Tensor) else {}
    graph.lint()


def _layer(model: nn.Module, name: str) -> str:
    """The module of a parameter or buffer, in words."""
    place = name.rpartition(".")[0]
    return f"layer {place or 'model'} ({type(model.get_submodule(place)).__name__})"


def _last_size(output: Any) -> int:
    """Size of the last dimension of the output, or of its logits."""
    output = getattr(output, "logits", output)
    return output.shape[-1] if isinstance(output, Tensor) and output.dim() else 1


def _python_draws() -> Any:
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, keys.tobytes(), rest  # type: ignore[union-attr]


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous()
    return flat.view(-1).view(torch.uint8).numpy().tobytes() if flat.numel() else b""
