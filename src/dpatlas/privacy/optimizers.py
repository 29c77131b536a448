"""Update rules on the privatised gradient: post-processing, which costs no privacy.

torch.optim has the same rules, but importing it takes four CPU-seconds, longer than many jobs
train. Its other rules are a phase's by a factory (`FromTorch`).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpatlas.accounting.parameter_names import longest_prefix
from dpatlas.base.guard import hold, real
from dpatlas.errors import InputError
from dpatlas.privacy.sums import NoisySum

OPTIMIZER_NAMES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
# Makes an optimizer of torch's parameter groups, such as partial(torch.optim.NAdam, eps=1e-6).
Factory = Callable[[list[dict[str, Any]]], Any]


@dataclass(frozen=True)
class ParameterGroup:
    """Settings of the parameters whose names start with `prefix`; None: those of the phase.

    A parameter belongs to the group with its longest prefix. The phase's schedule of the learning
    rate multiplies `lr` too.
    """

    prefix: str
    lr: float | None = None
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        for name, domain in (("lr", real(gt=0, le=1e30)), ("weight_decay", real(ge=0, le=1e30))):
            if getattr(self, name) is not None:
                hold(self, name, domain, f"{name} of the parameter group {self.prefix!r}")


@dataclass(frozen=True)
class Setting:
    """Learning rate and weight decay of one parameter."""

    lr: float
    weight_decay: float


class Optimizer:
    """Updates `parameters` (by name) in place; `state` maps slot/name to state tensors.

    `settings`: of every parameter, by name. `size`: the step size of a learning rate at step
    k = 0, 1, ... `decoupled`: weight decay shrinks the weights by lr weight_decay before the step;
    else it is an L2 term of the gradient.
    """

    decoupled = False

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        settings: Mapping[str, Setting],
        size: Callable[[float, int], float],
    ):
        self.parameters, self.settings, self.size = parameters, settings, size
        self.state: dict[str, Tensor] = {}
        self.steps = 0

    @torch.no_grad()
    def step(self, noisy: NoisySum) -> None:
        """One update by a noisy mean, whose tensors it may overwrite; InputError for another."""
        if not isinstance(noisy, NoisySum):
            allowed = "a NoisySum (dpatlas.privacy.noisy_sum of a clipped sum)"
            raise InputError("update", type(noisy).__name__, allowed)
        self.steps += 1
        self.take(noisy.gradients)

    def take(self, gradients: Mapping[str, Tensor]) -> None:
        """Move the parameters by their noisy gradients."""
        for name, gradient in gradients.items():
            value, setting = self.parameters[name], self.settings[name]
            rate = self.size(setting.lr, self.steps - 1)
            if setting.weight_decay and self.decoupled:
                value.mul_(1 - rate * setting.weight_decay)
            elif setting.weight_decay:
                gradient.add_(value, alpha=setting.weight_decay)
            self.update(name, value, gradient, rate)

    def update(self, name: str, value: Tensor, gradient: Tensor, rate: float) -> None:
        """Move one parameter by a step of size `rate`."""
        raise NotImplementedError

    def state_of(self, slot: str, name: str, like: Tensor) -> Tensor:
        """A parameter's state tensor in `slot`, initially zeros."""
        key = f"{slot}/{name}"
        if key not in self.state:
            self.state[key] = torch.zeros_like(like)
        return self.state[key]


class SGD(Optimizer):
    """w <- w - lr b with b <- momentum b + g + weight_decay w."""

    momentum = 0.0

    def update(self, name: str, value: Tensor, gradient: Tensor, rate: float) -> None:
        """One parameter's step."""
        if self.momentum:
            gradient = self.state_of("momentum", name, gradient).mul_(self.momentum).add_(gradient)
        value.add_(gradient, alpha=-rate)


class Adam(Optimizer):
    """Kingma and Ba (2015), Algorithm 1; weight decay as an L2 term of the gradient."""

    def update(self, name: str, value: Tensor, gradient: Tensor, rate: float) -> None:
        """One parameter's step."""
        first = self.state_of("first", name, gradient).lerp_(gradient, 1 - BETA1)
        second = self.state_of("second", name, gradient)
        second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        scale = second.sqrt().div_(math.sqrt(1 - BETA2**self.steps)).add_(EPSILON)
        value.addcdiv_(first, scale, value=-rate / (1 - BETA1**self.steps))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, Algorithm 2)."""

    decoupled = True


class FromTorch(Optimizer):
    """An optimizer of torch.optim, which sees parameters and their noisy gradients.

    Learning rate and weight decay are those of `settings`, whatever the factory says of them.
    """

    def __init__(self, factory: Factory, *args: Any):
        super().__init__(*args)
        by_setting: dict[Setting, list[Tensor]] = {}
        for name, setting in self.settings.items():
            by_setting.setdefault(setting, []).append(self.parameters[name])
        self._inner = made(factory, [{"params": p, **vars(s)} for s, p in by_setting.items()])
        self._by_group, self._options = list(by_setting), options_of(self._inner)
        decays = "weight_decay" in self._inner.defaults
        if any(each.weight_decay for each in by_setting) and not decays:
            allowed = f"0 with {type(self._inner).__name__}, which has none"
            raise InputError("weight_decay", "a number > 0", allowed)

    def take(self, gradients: Mapping[str, Tensor]) -> None:
        """As torch's optimizer does."""
        for group, setting in zip(self._inner.param_groups, self._by_group, strict=True):
            group["lr"] = self.size(setting.lr, self.steps - 1)
        for name, gradient in gradients.items():
            self.parameters[name].grad = gradient.to(self.parameters[name].dtype)
        self._inner.step()
        for name in gradients:
            self.parameters[name].grad = None

    @property
    def state(self) -> dict[str, Tensor]:
        """By slot/name; InputError for a state of other things than tensors of parameters."""
        found, inner = {}, self._inner
        # By constants of its groups, as some rules count steps, or of no parameter.
        elsewhere = not all(isinstance(key, Tensor) for key in inner.state)
        if elsewhere or options_of(inner) != self._options:
            kind = f"{type(inner).__name__}, which keeps state elsewhere than by parameter"
            raise InputError("optimizer", kind, "tensors of parameters, which a checkpoint holds")
        for name, value in self.parameters.items():
            for slot, each in inner.state.get(value, {}).items():
                if isinstance(each, Tensor):
                    found[f"{slot}/{name}"] = each
                elif each is not None:
                    kind = f"{slot} of type {type(each).__name__} in its state"
                    raise InputError("optimizer", kind, "tensors, which a checkpoint holds")
        return found

    @state.setter
    def state(self, values: Mapping[str, Tensor]) -> None:
        for key, each in values.items():
            slot, name = key.split("/", 1)
            parameter = self.parameters[name]
            # A checkpoint has the bits of bfloat16 as whole numbers.
            bits = each.dtype == torch.int16 and parameter.dtype == torch.bfloat16
            self._inner.state[parameter][slot] = each.view(torch.bfloat16) if bits else each


def made(factory: Factory, groups: list[dict[str, Any]]) -> Any:
    """The factory's optimizer of these groups; InputError for another thing and for a failure."""
    allowed = (
        f"{', '.join(OPTIMIZER_NAMES)}, or a function of parameter groups that makes a "
        "torch.optim optimizer"
    )
    if not callable(factory):
        raise InputError("optimizer", repr(factory), allowed)
    given = [list(map(id, group["params"])) for group in groups]
    try:
        optimizer = factory(groups)
    except Exception as error:  # a stranger's code may raise anything
        raise InputError("optimizer", f"{type(error).__name__}: {error}", allowed) from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError("optimizer", type(optimizer).__name__, allowed)
    # Others may have gradients without noise.
    if [list(map(id, group["params"])) for group in optimizer.param_groups] != given:
        found = f"{type(optimizer).__name__} of other parameters or groups"
        raise InputError("optimizer", found, "one of the groups that the function gets")
    return optimizer


def options_of(optimizer: Any) -> list[str]:
    """What each group of torch's optimizer has beside parameters, rate and decay, in words."""
    own = ("params", "lr", "weight_decay")
    return [
        ", ".join(f"{key}={value}" for key, value in sorted(group.items()) if key not in own)
        for group in optimizer.param_groups
    ]


def in_words(optimizer: str | Factory) -> str:
    """What a plan and a card call an optimizer: with its settings if a factory makes it.

    Raises InputError for one that takes no step by a dense gradient alone.
    """
    if isinstance(optimizer, str):
        return optimizer
    parameter = torch.zeros(2, 2, requires_grad=True)
    parameter.grad = torch.ones(2, 2)
    trial = made(optimizer, [{"params": [parameter], **vars(Setting(1.0, 0.0))}])
    words = f"{type(trial).__name__}({options_of(trial)[0]})"
    try:
        trial.step()
    except Exception as error:  # as above
        found = f"{type(trial).__name__}, which fails: {f'{error}'.splitlines()[0][:200]}"
        raise InputError("optimizer", found, "one whose step needs gradients alone") from error
    return words


def make_optimizer(
    optimizer: str | Factory,
    parameters: Mapping[str, Tensor],
    settings: Mapping[str, Setting],
    size: Callable[[float, int], float],
    momentum: float,
) -> Optimizer:
    """The update rule of a name or factory; momentum counts for sgd."""
    if not isinstance(optimizer, str):
        return FromTorch(optimizer, parameters, settings, size)
    if optimizer == "sgd":
        sgd = SGD(parameters, settings, size)
        sgd.momentum = momentum
        return sgd
    return {"adam": Adam, "adamw": AdamW}[optimizer](parameters, settings, size)


def settings_by_name(
    names: Iterable[str], default: Setting, groups: Sequence[ParameterGroup]
) -> dict[str, Setting]:
    """The setting of each parameter; InputError for a group without a parameter of its own."""
    by_prefix = {group.prefix: group for group in groups}
    settings, used = {}, set()
    for name in names:
        found = longest_prefix(name, by_prefix)
        if found is None:
            settings[name] = default
            continue
        prefix, group = found
        used.add(prefix)
        settings[name] = Setting(
            default.lr if group.lr is None else group.lr,
            default.weight_decay if group.weight_decay is None else group.weight_decay,
        )
    for prefix in by_prefix:
        if prefix not in used:
            allowed = "prefixes that each hold a trained parameter"
            raise InputError("parameter_groups", f"prefix {prefix!r}", allowed)
    return settings
