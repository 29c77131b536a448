"""Clipped sums of per-record gradients of a network, from one forward and one backward pass.

    kernel = NetworkGradients(model)
    clipped = kernel.clipped_sum(x, labels, max_grad_norm=1.0)

During a pass, the forward of every layer with trainable parameters is replaced by that of its rule
(`dpatlas.privacy.rules`), which stores what per-record gradients follow from; afterwards the model
is unchanged. Layers without a rule are refused by name when the kernel is built, and networks in
which records depend on each other (`dpatlas.privacy.probe`) before any record is read.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from dpatlas.core.guard import checked, integer, one_of, real
from dpatlas.errors import InputError
from dpatlas.models.precision import passes
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
from dpatlas.privacy.layers import RULES, rule_for
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.probe import Loss, Subject, losses_of, probe, refuse_autocast
from dpatlas.privacy.rules import Rule


class NetworkGradients:
    """Per-record gradients of `model` with respect to its trainable parameters.

    `loss(output, labels)` gives one value per record. With `views` > 1 every record is that many
    consecutive rows of x (augmented views of it) and its gradient is their mean. `clipping`: `flat`
    clips the whole gradient at C = max_grad_norm, `per-layer` each of L layers' at C / sqrt(L), and
    `LayerBounds` the layers under each prefix at a bound of their own.

    Raises InputError that names the layer for: a trainable layer of a type without a rule, one that
    mixes records (BatchNorm in training mode), one that draws numbers outside of the keyed streams
    (Dropout in training mode), parameters that two layers share; and at the first sum, or in
    `probe`, for anything that lets one record move the contribution of another.
    """

    @checked(views=integer(ge=1))
    def __init__(
        self,
        model: nn.Module,
        loss: Loss = cross_entropy,
        views: int = 1,
        clipping: str | LayerBounds = "flat",
    ):
        if not isinstance(clipping, LayerBounds):
            one_of(*CLIPPINGS).check("clipping", clipping)
        self.model, self.loss, self.views, self.clipping = model, loss, views, clipping
        refuse_unsafe_layers(model)
        refuse_shared_parameters(model)
        self.rules: dict[str, Rule] = {}
        for name, layer in model.named_modules():
            keys = [
                key for key, value in layer.named_parameters(recurse=False) if value.requires_grad
            ]
            if not keys:
                continue
            rule = rule_for(name, layer, views)
            if rule is None or set(keys) - set(rule.trainable):
                raise InputError(
                    f"layer {name or 'model'} ({type(layer).__name__})",
                    f"no rule for the gradients of {', '.join(keys)}",
                    f"trainable parameters in {', '.join(kind.__name__ for kind in RULES)}",
                )
            self.rules[name] = rule
        trainable = [name for name, value in model.named_parameters() if value.requires_grad]
        if not trainable:
            raise InputError("model", "no trainable parameter", "at least one")
        self.order = trainable
        self.parts = clipping.parts(self.rules) if isinstance(clipping, LayerBounds) else []
        self.chain = chain_of(model, self.rules)
        self._modules = list(model.modules())
        # Training or evaluation mode of each module at the last probe.
        self._probed: list[bool] | None = None

    def constants(self, x: Tensor) -> None:
        """None: unlike in `SoftmaxGradients`, no part of a record's norm is constant."""

    @checked(max_grad_norm=real(gt=0))
    @torch.no_grad()
    def clipped_sum(
        self, x: Tensor, labels: Tensor, max_grad_norm: float, constants: Tensor | None = None
    ) -> ClippedSum:
        """Sum over records of clipped gradients.

        x: (records * views, ...); labels: (records * views,). A gradient that is not finite, or
        whose squared norm overflows, counts as zero. The first call probes the network.
        """
        if len(x) == 0:
            return self.empty()
        if self._probed is None:
            self.probe(x, labels)
        elif self._probed != self._modes():
            refuse_unsafe_layers(self.model)
            self.probe(x, labels)
        self._backward(x, labels)
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

    def probe(self, x: Tensor, labels: Tensor) -> None:
        """Probe the network with synthetic records of the shape and type of these rows.

        x (rows, ...), labels (rows,): only shapes, types and device are used. Raises InputError as
        `dpatlas.privacy.probe.probe`.
        """
        probe(
            Subject(
                self.model,
                self.loss,
                self._on_copy,
                x,
                labels,
                views=self.views,
                settings=(self.clipping,),
            )
        )
        self.take_as_probed()

    def take_as_probed(self) -> None:
        """Record that the caller has probed the network in its present modes."""
        self._probed = self._modes()

    def _on_copy(self, model: nn.Module, loss: Loss) -> "NetworkGradients":
        kernel = NetworkGradients(model, loss, self.views, self.clipping)
        kernel.take_as_probed()
        return kernel

    def _modes(self) -> list[bool]:
        return [module.training for module in self._modules]

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
        self._refuse_unless(lambda rule: rule.reached, "no gradient of the loss reaches it")

    def _by_autograd(self, x: Tensor, labels: Tensor) -> None:
        with self._watching(), torch.enable_grad():
            losses = losses_of(self.model, self.loss, x, labels)
            self._refuse_unless(lambda rule: rule.calls > 0, "its forward is never called")
            if losses.requires_grad:
                # Of a scalar: an explicit output gradient makes torch import sympy for a second.
                (losses.sum() / self.views).backward()

    def _refuse_unless(self, fine: Callable[[Rule], bool], found: str) -> None:
        for name, rule in self.rules.items():
            if not fine(rule):
                raise InputError(
                    f"layer {name} ({type(rule.layer).__name__})",
                    f"trainable, but {found}",
                    "a layer that the loss depends on, or one that is frozen",
                )

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        try:
            for rule in self.rules.values():
                rule.layer.forward = rule
            yield
        finally:
            for rule in self.rules.values():
                del rule.layer.forward


def refuse_unsafe_layers(model: nn.Module) -> None:
    """InputError that names the first layer which mixes records or draws unkeyed numbers.

    In evaluation mode, BatchNorm and InstanceNorm with running statistics map each record
    independently and are allowed if they are frozen, and Dropout drops nothing.
    """
    for name, layer in model.named_modules():
        where = f"layer {name or 'model'} ({type(layer).__name__})"
        if isinstance(layer, _BatchNorm):
            trained = any(value.requires_grad for value in layer.parameters(recurse=False))
            if layer.training or layer.running_mean is None or trained:
                raise InputError(
                    where,
                    "statistics over the batch, so that one record moves the others' gradients",
                    "GroupNorm (dpatlas.models.group_norm.to_group_norm(model) replaces it), or a "
                    "frozen BatchNorm in evaluation mode",
                )
        if isinstance(layer, _InstanceNorm) and layer.track_running_stats and layer.training:
            raise InputError(where, "running statistics over records", "track_running_stats=False")
        if isinstance(layer, _DropoutNd) and layer.p > 0 and layer.training:
            raise InputError(where, f"p = {layer.p:g}, drawn outside of the keyed streams", "p = 0")


def refuse_shared_parameters(model: nn.Module) -> None:
    """InputError that gives both names of a trainable parameter that two layers share."""
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            continue
        other = first.setdefault(id(parameter), name)
        if other != name:
            raise InputError(
                f"parameter {name}", f"tied to {other}", "parameters of one layer each"
            )
