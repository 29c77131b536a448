"""Update rules on the privatised gradient: post-processing, which costs no privacy.

torch.optim has the same rules, but importing it takes four CPU-seconds, longer than many jobs
train.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dpatlas.accounting.parameter_names import longest_prefix
from dpatlas.base.guard import hold, real
from dpatlas.errors import InputError
from dpatlas.privacy.sums import NoisySum

OPTIMIZER_NAMES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


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
        for name, gradient in noisy.gradients.items():
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


def make_optimizer(
    name: str,
    parameters: Mapping[str, Tensor],
    settings: Mapping[str, Setting],
    size: Callable[[float, int], float],
    momentum: float,
) -> Optimizer:
    """The update rule called `name`; momentum counts for sgd."""
    if name == "sgd":
        optimizer = SGD(parameters, settings, size)
        optimizer.momentum = momentum
        return optimizer
    return {"adam": Adam, "adamw": AdamW}[name](parameters, settings, size)


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
