"""The form of all networks, and the two that consist of linear layers alone."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from math import prod

from torch import Tensor, nn


class Scale(nn.Module):
    """Multiplies its input by a constant, which is not trained."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape to the same."""
        return self.factor * x


class Network(nn.Sequential):
    """Named parts in sequence, of which the last, `head`, is linear.

    A part's name begins the names of its parameters, so `head` selects the head's. Every parameter
    sits in a leaf module that does one operation, no part mixes records, and none works in place on
    a layer's output, which backward hooks do not allow.
    """

    head: nn.Linear

    def __init__(self, parts: Iterable[tuple[str, nn.Module]]):
        super().__init__(OrderedDict(parts))

    def features(self, x: Tensor) -> Tensor:
        """The head's input, (records, head.in_features)."""
        *body, _ = self
        for part in body:
            x = part(x)
        return x

    def split(self, names: Collection[str]) -> tuple[nn.Sequential, "Network"]:
        """The parts before the first that holds one of these parameters, and the rest.

        Raises ValueError if no part does.
        """
        parts = list(self.named_children())
        owners = {name.partition(".")[0] for name in names}
        first = next((i for i, (name, _) in enumerate(parts) if name in owners), None)
        if first is None:
            raise ValueError(f"no part holds any of {sorted(names)}")
        return nn.Sequential(OrderedDict(parts[:first])), Network(parts[first:])


def linear(image_shape: Sequence[int], outputs: int) -> Network:
    """Softmax regression on flat records."""
    return Network([("head", nn.Linear(prod(image_shape), outputs))])


def mlp(image_shape: Sequence[int], outputs: int, widths: Sequence[int] = (256, 128)) -> Network:
    """Hidden ReLU layers of `widths`, with biases, on flat records."""
    parts = []
    for index, (into, out) in enumerate(pairwise([prod(image_shape), *widths]), start=1):
        parts += [(f"linear{index}", nn.Linear(into, out)), (f"relu{index}", nn.ReLU())]
    return Network([*parts, ("head", nn.Linear(widths[-1], outputs))])
