"""Update rules on the privatised gradient: post-processing, which costs no privacy.

torch.optim has the same rules, but importing it takes four CPU-seconds, longer than many jobs
train.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

OPTIMIZERS = ("sgd", "adam")
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Optimizer:
    """Updates `parameters` (by name) in place; `state` maps slot/name to state tensors.

    Step k = 0, 1, .. has the step size lr / (1 + lr_decay k).
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        lr: float,
        weight_decay: float,
        lr_decay: float = 0.0,
    ):
        self.parameters, self.lr, self.weight_decay = parameters, lr, weight_decay
        self.lr_decay = lr_decay
        self.state: dict[str, Tensor] = {}
        self.steps = 0

    @property
    def rate(self) -> float:
        """Size of the current step."""
        return self.lr / (1 + self.lr_decay * (self.steps - 1))

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One update; may overwrite the gradients."""
        self.steps += 1
        for name, gradient in gradients.items():
            value = self.parameters[name]
            if self.weight_decay:
                gradient.add_(value, alpha=self.weight_decay)
            self.update(name, value, gradient)

    def update(self, name: str, value: Tensor, gradient: Tensor) -> None:
        """Move one parameter."""
        raise NotImplementedError

    def state_of(self, slot: str, name: str, like: Tensor) -> Tensor:
        """A parameter's state tensor in `slot`, initially zeros."""
        key = f"{slot}/{name}"
        if key not in self.state:
            self.state[key] = torch.zeros_like(like)
        return self.state[key]


class SGD(Optimizer):
    """w <- w - lr b with b <- momentum b + g + weight_decay w."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        lr: float,
        weight_decay: float,
        momentum: float,
        lr_decay: float = 0.0,
    ):
        super().__init__(parameters, lr, weight_decay, lr_decay)
        self.momentum = momentum

    def update(self, name: str, value: Tensor, gradient: Tensor) -> None:
        """One parameter's step."""
        if self.momentum:
            gradient = self.state_of("momentum", name, gradient).mul_(self.momentum).add_(gradient)
        value.add_(gradient, alpha=-self.rate)


class Adam(Optimizer):
    """Kingma and Ba (2015), Algorithm 1; weight decay as an L2 term of the gradient."""

    def update(self, name: str, value: Tensor, gradient: Tensor) -> None:
        """One parameter's step."""
        first = self.state_of("first", name, gradient).lerp_(gradient, 1 - BETA1)
        second = self.state_of("second", name, gradient)
        second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        scale = second.sqrt().div_(math.sqrt(1 - BETA2**self.steps)).add_(EPSILON)
        value.addcdiv_(first, scale, value=-self.rate / (1 - BETA1**self.steps))


def make_optimizer(
    name: str,
    parameters: Mapping[str, Tensor],
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    lr_decay: float = 0.0,
) -> Optimizer:
    """The update rule called `name`; momentum counts for sgd."""
    if name == "sgd":
        return SGD(parameters, lr, weight_decay, momentum, lr_decay)
    return Adam(parameters, lr, weight_decay, lr_decay)
