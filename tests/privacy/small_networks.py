"""Networks of a line each: parts by name, and a function as their forward pass."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpatlas.privacy.losses import cross_entropy

WIDTH, TIME, WORDS, CLASSES = 8, 4, 20, 3


class Net(nn.Module):
    """A network whose forward pass is `act(self, *inputs)`.

    parts: modules, buffers, and parameters by their shape or as they are; others stay attributes.
    """

    def __init__(self, act, **parts):
        super().__init__()
        self.act = act
        for name, part in parts.items():
            made = nn.Parameter(0.3 * torch.randn(part)) if isinstance(part, tuple) else part
            if isinstance(made, Tensor) and not isinstance(made, nn.Parameter):
                self.register_buffer(name, made)
            else:
                setattr(self, name, made)

    def forward(self, *inputs, **named):
        return self.act(self, *inputs, **named)


def mlp():
    return nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, CLASSES))


def before(act):
    """A network whose records go through `act`."""
    return lambda: Net(lambda self, x: self.inner(act(x)), inner=mlp())


def behind(act, **parts):
    """A network whose hidden values go through `act`."""

    def forward(self, x):
        return self.last(act(self.first(x)).tanh())

    return lambda: Net(forward, first=nn.Linear(WIDTH, 7), last=nn.Linear(7, CLASSES), **parts)


class Case(NamedTuple):
    """A network, its records and targets, and its loss."""

    make: object
    x: object
    targets: object
    loss: object = cross_entropy


def made(case):
    """The network, with weights that are the same each time, and none of them zero."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = case.make()
        for value in model.parameters():
            lazy = nn.parameter.is_lazy(value)
            if value.requires_grad and not lazy and not value.any():
                nn.init.normal_(value, std=0.1)
    return model
