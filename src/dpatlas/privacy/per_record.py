"""Clipped sums of per-record gradients of a network, from one forward and one backward pass.

    kernel = NetworkGradients(model)
    clipped = kernel.clipped_sum(x, labels, max_grad_norm=1.0)

During a pass, the forward of every layer with trainable parameters is replaced by that of its rule
(`dpatlas.privacy.rules`), which stores what per-record gradients follow from; afterwards the model
is unchanged. What no rule covers is passed through record by record (`dpatlas.privacy.recomputed`),
at a cost that a warning states. Networks in which records depend on each other are refused
(`dpatlas.privacy.probe`) before any record is read.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter

from dpatlas.core.guard import checked, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.models.precision import exact, passes
from dpatlas.privacy.augmentation import Augmentation
from dpatlas.privacy.chain import chain_of
from dpatlas.privacy.clip_bounds import LayerBounds
from dpatlas.privacy.clipping import (
    CLIPPINGS,
    ClippedSum,
    bad_records,
    clip_factors,
    empty_sum,
    part_factors,
    per_layer_bound,
)
from dpatlas.privacy.fingerprint import REGISTRIES
from dpatlas.privacy.free_parameters import FreeParameters
from dpatlas.privacy.kept_state import HOOKS, hooks_of_all
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.probe import Loss, Mismatch, Subject, losses_of, probe, refuse_autocast
from dpatlas.privacy.recomputed import Recomputed
from dpatlas.privacy.registry import is_built_in, rule_of
from dpatlas.privacy.rules import ANCHOR, Ambiguous, Rule, Unsupported
from dpatlas.privacy.stand_in import NotBroadcast
from dpatlas.privacy.structured import TakesStructured

# What is done about parameters without a rule: each gets a copy for every record; the modules that
# hold them, or the whole network, are passed through record by record. The first that passes the
# probe is taken.
WAYS = ("copies", "modules", "network")
# Attributes whose change is seen at every step.
_PLAIN = (bool, int, float, str, type(None))


class PerRecordWarning(UserWarning):
    """Gradients are computed record by record, which takes more time and memory than a rule."""


class NetworkGradients:
    """Per-record gradients of `model` with respect to its trainable parameters.

    `loss(output, labels)` gives one value per record. With `views` > 1 every record is that many
    consecutive rows of x (augmented views of it) and its gradient is their mean. `clipping`: `flat`
    clips the whole gradient at C = max_grad_norm, `per-layer` each of L layers' at C / sqrt(L), and
    `LayerBounds` the layers under each prefix at a bound of their own.

    Raises InputError that names the layer for one that mixes records (BatchNorm in training mode)
    or draws numbers outside of the keyed streams (Dropout in training mode); and at the first sum,
    or in `probe`, for anything that lets one record move the contribution of another. What has no
    rule gives a PerRecordWarning there. `way`: the first of `WAYS` to try.
    """

    @checked(views=integer(ge=1), way=one_of(*WAYS))
    def __init__(
        self,
        model: nn.Module,
        loss: Loss = cross_entropy,
        views: int = 1,
        clipping: str | LayerBounds = "flat",
        way: str = WAYS[0],
    ):
        if not isinstance(clipping, LayerBounds):
            one_of(*CLIPPINGS).check("clipping", clipping)
        self.model, self.loss, self.views, self.clipping = model, loss, views, clipping
        refuse_unsafe_layers(model)
        self.order = [name for name, value in model.named_parameters() if value.requires_grad]
        if not self.order:
            raise InputError("model", "no trainable parameter", "at least one")
        self._trainable = [model.get_parameter(name) for name in self.order]
        # State of each module, the loss included, at the last probe.
        self._probed: list[Any] | None = None
        # False within a probe, which sees itself what changes: another one in it would never end.
        self._watches = True
        self._go(way)

    def _go(self, way: str) -> None:
        """Make the rules of a way."""
        self.way = way
        self.rules = rules_for(self.model, self.views, way)
        bounds = self.clipping
        self.parts = bounds.parts(self.rules) if isinstance(bounds, LayerBounds) else []
        self.chain = chain_of(self.model, self.rules)
        self.at_once = min(
            (rule.records_at_once() for rule in self.recomputed.values()), default=None
        )

    @property
    def recomputed(self) -> dict[str, Recomputed]:
        """The modules that are passed through record by record, by name."""
        return {name: rule for name, rule in self.rules.items() if isinstance(rule, Recomputed)}

    @property
    def rule_types(self) -> list[type[Rule]]:
        """The type of every rule, by which two kernels of one network may differ."""
        return [type(rule) for rule in self.rules.values()]

    def constants(self, x: Tensor) -> None:
        """None: unlike in `SoftmaxGradients`, no part of a record's norm is constant."""

    @checked(max_grad_norm=real(gt=0))
    @torch.no_grad()
    @exact()
    def clipped_sum(
        self, x: Tensor, labels: Tensor, max_grad_norm: float, constants: Tensor | None = None
    ) -> ClippedSum:
        """Sum over records of clipped gradients.

        x: (records * views, ...); labels: (records * views,). A gradient that is not finite, or
        whose squared norm overflows, counts as zero, as does one of a linear layer's inputs beyond
        8e29. The first call probes the network.
        """
        if len(x) == 0:
            return self.empty()
        if self._probed is None:
            self.probe(x, labels)
        elif self._watches and self._probed != self._states():
            self._probe_again(x, labels)
        parts = self._parts(len(x))
        if len(parts) > 1:
            first, *others = (self._clipped_part(x[p], labels[p], max_grad_norm) for p in parts)
            for other in others:
                first.add(other)
            return first
        return self._clipped_part(x, labels, max_grad_norm)

    def _parts(self, rows: int) -> list[slice]:
        """Rows that are passed through together: all, or as many as memory allows."""
        size = self.views * self.at_once if self.at_once else rows
        return [slice(start, start + size) for start in range(0, rows, size)]

    def _clipped_part(self, x: Tensor, labels: Tensor, max_grad_norm: float) -> ClippedSum:
        """`clipped_sum` of rows that are passed through together."""
        try:
            self._backward(x, labels)
        except Ambiguous:
            # With another number of rows the tensor's length tells whose it is.
            if len(x) == self.views:
                raise Unsupported("model", "an index of as many numbers as views", "more") from None
            first, rest = slice(None, self.views), slice(self.views, None)
            found = self._clipped_part(x[first], labels[first], max_grad_norm)
            found.add(self._clipped_part(x[rest], labels[rest], max_grad_norm))
            return found
        rules = list(self.rules.values())
        layer_bound = per_layer_bound(max_grad_norm, len(rules))
        bounds: dict[str, float] = {}
        if isinstance(self.clipping, LayerBounds):
            bounds = self.clipping.scaled(max_grad_norm)
            layer_bound = per_layer_bound(min(bounds.values()), len(rules))
        norms2 = torch.stack([rule.norms2(layer_bound**2) for rule in rules])
        dtype = self.model.get_parameter(self.order[0]).dtype
        total = norms2.sum(0).to(dtype)
        bad, skipped = bad_records(total)
        if self.clipping == "flat":
            factors = clip_factors(norms2.sum(0), max_grad_norm).expand(len(rules), -1)
        else:
            parts = part_factors(norms2, self.parts, bounds) if bounds else None
            factors = clip_factors(norms2, layer_bound) if parts is None else parts
            factors = torch.where(torch.isfinite(total), factors, 0)
        factors = factors.to(dtype)
        if bad is not None:
            for rule in rules:
                rule.discard(bad)
        gradients: dict[str, Tensor] = {}
        for (name, rule), weights in zip(self.rules.items(), factors, strict=True):
            prefix = f"{name}." if name else ""
            for key, gradient in rule.weighted(weights).items():
                gradients[prefix + key] = gradient
            rule.reset()
        return ClippedSum({name: gradients[name] for name in self.order}, total.sqrt(), skipped)

    def empty(self) -> ClippedSum:
        """The clipped sum over no records."""
        return empty_sum(self.model, self.order)

    def probe(self, x: Tensor, labels: Tensor, augmentation: Augmentation | None = None) -> int:
        """Probe the network with synthetic records of the shape and type of these rows.

        x (rows, ...), labels (rows,): only shapes, types and device are used. The first of `WAYS`
        that passes is taken. Returns the size of a record's output. Raises InputError as
        `dpatlas.privacy.probe.probe`.
        """
        failure: Unsupported | None = None
        for way in WAYS[WAYS.index(self.way) :]:
            if way != self.way:
                before = self.rule_types
                self._go(way)
                if self.rule_types == before:
                    continue
            settings = type(self), self.clipping, way, self.rule_types
            views = 1 if augmentation else self.views
            subject = Subject(
                self.model, self.loss, self._on_copy, x, labels, views, augmentation, settings
            )
            try:
                outputs = probe(subject)
            except Unsupported as error:
                failure = failure or error
                own = [rule for rule in self.rules.values() if not is_built_in(type(rule))]
                if isinstance(error, Mismatch) and own:
                    # A wrong rule must be mended, not passed over.
                    names = ", ".join(type(rule).__name__ for rule in own)
                    raise InputError(
                        f"{error.where}, with the rule {names}", error.found, error.allowed
                    ) from None
            else:
                self._warn(failure)
                self.take_as_probed()
                return outputs
        assert failure is not None
        raise failure

    def _probe_again(self, x: Tensor, labels: Tensor) -> None:
        """Probe a network or a loss that has changed since the last step."""
        refuse_unsafe_layers(self.model)
        found = [value for value in self.model.parameters() if value.requires_grad]
        if list(map(id, found)) != list(map(id, self._trainable)):
            allowed = "layers with the same parameters for all steps of a phase"
            raise InputError("model", "other trainable parameters than at the first step", allowed)
        self._go(self.way)
        self.probe(x, labels)

    def _warn(self, failure: Unsupported | None) -> None:
        """PerRecordWarning that says what is passed through record by record, and at what cost."""
        for name, rule in self.recomputed.items():
            size = sum(value.numel() for value in rule.trainable.values())
            held = rule.records_at_once()
            what = f"layer {name} ({type(rule.layer).__name__})" if name else "the whole network"
            reason = "it has no rule" if name or failure is None else f"{failure}"
            warnings.warn(
                f"per-record gradients of {what} are computed record by record with torch.func "
                f"({reason}): there, a step takes two to six times as long as one without privacy, "
                f"and each record needs memory for its own gradient of {size:,} numbers "
                f"({4e-6 * size:,.2g} MB; at most {held:,} records at a time); a rule for such "
                "layers (dpatlas.privacy.Rule) avoids that",
                PerRecordWarning,
                stacklevel=3,
            )

    def take_as_probed(self) -> None:
        """Record that the caller has probed the network in its present state."""
        self._probed = self._states()

    def _on_copy(self, model: nn.Module, loss: Loss) -> "NetworkGradients":
        kernel = NetworkGradients(model, loss, self.views, self.clipping, self.way)
        kernel.take_as_probed()
        kernel._watches = False
        return kernel

    def _states(self) -> list[Any]:
        """Modules, their modes, hooks and forwards; numbers and texts of own ones and of the loss.

        Modules of torch itself do not mix records by other settings.
        """
        of_model = list(self.model.modules())
        of_loss: list[Any] = list(self.loss.modules()) if isinstance(self.loss, nn.Module) else []
        modules = of_model + of_loss
        own = [each for each in of_model if not type(each).__module__.startswith("torch.nn.")]
        return [
            self.loss,
            modules,
            [(type(module), module.training, vars(module).get("forward")) for module in modules],
            [tuple(getattr(module, name)) for module in modules for name in HOOKS],
            hooks_of_all(),
            *map(plain_state, own),
            *map(plain_state, of_loss or [self.loss]),
        ]

    def _backward(self, x: Tensor, labels: Tensor) -> None:
        refuse_autocast(x.device)
        for rule in self.rules.values():
            rule.reset()
            rule.rows = len(x)
        with passes():
            if self.chain is not None and self.chain.holds(x):
                self.chain.backward(self.loss, x, labels, self.views)
            else:
                self._by_autograd(x, labels)
        self._refuse_unless(lambda rule: rule.is_reached(), "no gradient of the loss reaches it")

    def _by_autograd(self, x: Tensor, labels: Tensor) -> None:
        with torch.enable_grad(), self._watching():
            losses = losses_of(self._output, self.loss, x, labels)
            self._refuse_unless(
                lambda rule: rule.calls > 0, "its forward is never called", Unsupported
            )
            if losses.requires_grad:
                # Of a scalar: an explicit output gradient makes torch import sympy for a second.
                (losses.sum() / self.views).backward(inputs=[ANCHOR])

    def _output(self, x: Tensor) -> Tensor:
        """The network's output; Unsupported where it cannot take copies of its parameters."""
        try:
            return self.model(x)
        except (InputError, Ambiguous):
            raise
        except NotBroadcast as error:
            found = f"parameters, or rows of an embedding, that are of no single record and {error}"
            allowed = "such numbers in sums, products and joins with each record's own"
            raise Unsupported("model", found, allowed) from None
        except Exception as error:
            copied = [rule for rule in self.rules.values() if isinstance(rule, FreeParameters)]
            if not copied:
                raise
            rule = copied[0]
            names = ", ".join(rule.trainable)
            raise Unsupported(
                f"layer {rule.name or 'model'} ({type(rule.layer).__name__})",
                f"no rule for the gradients of {names}: {type(error).__name__}: {error}",
                "a layer with a rule",
            ) from None

    def _refuse_unless(
        self, fine: Callable[[Rule], bool], found: str, kind: type[InputError] = InputError
    ) -> None:
        for name, rule in self.rules.items():
            if not fine(rule):
                raise kind(
                    f"layer {name} ({type(rule.layer).__name__})",
                    f"trainable, but {found}",
                    "a layer that the loss depends on, or one that is frozen",
                )

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        installed: list[Rule] = []
        try:
            for rule in self.rules.values():
                rule.install()
                installed.append(rule)
            yield
        finally:
            for rule in installed:
                rule.remove()


def rules_for(model: nn.Module, views: int, way: str) -> dict[str, Rule]:
    """The rules of a network's trainable parameters by the name of their module.

    way: one of `WAYS`. A parameter that two layers share needs the whole network.
    """
    if way == "network" or shares_parameters(model):
        return {"": Recomputed("", model, views)}
    rules: dict[str, Rule] = {}
    for name, layer in model.named_modules():
        if any(rule.whole and inside(name, whole) for whole, rule in rules.items()):
            continue
        kind = rule_of(layer)
        own = trainable_names(layer, recurse=kind is not None and kind.whole)
        rule = kind(name, layer, views) if kind and own else None
        if rule is None or set(own) - set(rule.trainable):
            own = trainable_names(layer, recurse=False)
            if not own:
                continue
            if way == "modules":
                rule = Recomputed(name, layer, views)
            else:
                # What the network itself uses is an attribute of the network that is wrapped.
                wrapped = layer.wrapped if isinstance(layer, TakesStructured) else layer
                rule = FreeParameters(name, wrapped, own, views)
        rules[name] = rule
    return rules


def trainable_names(layer: nn.Module, recurse: bool) -> list[str]:
    """Names of a module's trainable parameters; with `recurse` those of its parts too."""
    return [name for name, value in layer.named_parameters(recurse=recurse) if value.requires_grad]


def inside(name: str, whole: str) -> bool:
    """Whether the module `name` is part of the module `whole`."""
    return whole == "" or name.startswith(f"{whole}.")


def refuse_unsafe_layers(model: nn.Module) -> None:
    """InputError that names the first layer which mixes records or draws unkeyed numbers.

    Or which the engine cannot call: one whose shape the first batch decides, or TorchScript.

    In evaluation mode, BatchNorm and InstanceNorm with running statistics map each record
    independently and are allowed, and Dropout drops nothing.
    """
    for name, layer in model.named_modules():
        where = f"layer {name or 'model'} ({type(layer).__name__})"
        if isinstance(layer, torch.jit.ScriptModule):
            raise InputError(where, "TorchScript", "the module that it was made from")
        if any(isinstance(value, UninitializedParameter) for value in layer.parameters(False)):
            allowed = "a layer with its shape; zeros passed through the network set it"
            raise InputError(where, "parameters without a shape", allowed)
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            raise InputError(
                where,
                "statistics over the batch, so that one record moves the others' gradients",
                "GroupNorm (dpatlas.models.group_norm.to_group_norm(model) replaces it), or "
                "BatchNorm in evaluation mode",
            )
        if isinstance(layer, _InstanceNorm) and layer.track_running_stats and layer.training:
            raise InputError(where, "running statistics over records", "track_running_stats=False")
        # Dropout of attention and of recurrent layers is a number.
        p = layer.p if isinstance(layer, _DropoutNd) else getattr(layer, "dropout", 0)
        if isinstance(p, int | float) and p > 0 and layer.training:
            raise InputError(where, f"p = {p:g}, drawn outside of the keyed streams", "p = 0")


def shares_parameters(model: nn.Module) -> bool:
    """Whether two layers share a trainable parameter."""
    every = [
        id(value)
        for _, value in model.named_parameters(remove_duplicate=False)
        if value.requires_grad
    ]
    return len(every) > len(set(every))


def plain_state(value: Any) -> list[Any]:
    """Attributes of an object that are numbers or texts, and its dicts with such values."""
    return [
        (name, _plain_part(each))
        for name, each in getattr(value, "__dict__", {}).items()
        if isinstance(each, (*_PLAIN, dict)) and name not in REGISTRIES
    ]


def _plain_part(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return [(key, each if isinstance(each, _PLAIN) else None) for key, each in value.items()]
