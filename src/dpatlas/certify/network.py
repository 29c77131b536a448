"""A user's network in the form that passes of mean-field networks take."""

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn

from dpatlas.errors import InputError
from dpatlas.models.network import Network

# Parts without parameters that treat each record alone and draw nothing.
PLAIN = (
    nn.AvgPool2d,
    nn.ELU,
    nn.Flatten,
    nn.GELU,
    nn.Identity,
    nn.LeakyReLU,
    nn.MaxPool2d,
    nn.ReLU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Tanh,
    nn.Unflatten,
)
# Methods that an instance may not override.
OVERRIDES = ("forward", "reset_parameters")
ALLOWED = (
    "nn.Sequential of Linear and of Conv2d with kernel 3, padding 1, stride 1 (with bias, none "
    "twice), activations, pooling and Flatten, that ends with a Linear"
)


def chain(model: nn.Module) -> Network:
    """A copy of the model on the CPU in float32, its parts in one sequence.

    Raises InputError for another kind of model, naming the part.
    """
    parts = list(_flattened(model, type(model).__name__))
    if any(each.is_meta for each in model.parameters()):
        raise InputError("model", "weights on the meta device", "weights with values")
    layers = [part for _, part in parts if isinstance(part, nn.Linear | nn.Conv2d)]
    if len({id(part) for part in layers}) < len(layers):
        raise InputError("model", "a layer that occurs twice", ALLOWED)
    weights = [value for layer in layers for value in layer.parameters() if value.numel()]
    if len({value.data_ptr() for value in weights}) < len(weights):
        # Each would get deviations and a KL of its own.
        raise InputError("model", "layers that share weights", ALLOWED)
    if not parts or type(parts[-1][1]) is not nn.Linear:
        raise InputError("model", f"{parts[-1][0] if parts else 'no part'} as the last", ALLOWED)
    last = len(parts) - 1
    copies = [
        ("head" if number == last else f"part{number}", deepcopy(part))
        for number, (_, part) in enumerate(parts)
    ]
    return Network(copies).cpu().float().requires_grad_(False)


def _flattened(model: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Parts in their order, those of inner sequences in the place of each."""
    if isinstance(model, nn.Module) and (model._forward_hooks or model._forward_pre_hooks):
        # Errors are counted by formulas for the layers, which call no hook.
        raise InputError("model", f"{name} with a forward hook", "parts without hooks")
    for method in OVERRIDES:
        if isinstance(model, nn.Module) and method in vars(model):
            raise InputError("model", f"{name} with a {method} of its own", "that of its class")
    if type(model) is nn.Sequential or isinstance(model, Network):
        for number, part in enumerate(model):
            yield from _flattened(part, f"part {number} ({type(part).__name__})")
        return
    if not (type(model) in PLAIN or _is_linear(model) or _is_convolution(model)):
        raise InputError("model", name, ALLOWED)
    yield name, model


def _is_linear(part: nn.Module) -> bool:
    return type(part) is nn.Linear and _has_parameters(part, (part.out_features, part.in_features))


def _is_convolution(part: nn.Module) -> bool:
    return (
        type(part) is nn.Conv2d
        and _has_parameters(part, (part.out_channels, part.in_channels, 3, 3))
        and part.kernel_size == (3, 3)
        and part.padding in ((1, 1), "same")
        and part.padding_mode == "zeros"
        and (part.stride, part.dilation, part.groups) == ((1, 1), (1, 1), 1)
    )


def _has_parameters(part: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether a weight of this shape, and its bias, are all that a layer has."""
    shapes = {name: tuple(value.shape) for name, value in part.named_parameters()}
    return shapes == {"weight": shape, "bias": shape[:1]}


def check_takes(network: Network, x: Tensor) -> int:
    """The number of outputs; InputError unless the network takes records like those of x (n, ...).

    A linear layer applied at several positions of a record shares its weights among them, for which
    independent draws would be wrong.
    """
    # Three records, then one: a convolution takes one image without a batch for a batch.
    for records in (3, 1):
        values = x[[0] * records]
        for part in network:
            name = type(part).__name__
            if isinstance(part, nn.Linear) and values.dim() != 2:
                found = f"a linear layer on records of shape {tuple(values.shape[1:])}"
                allowed = "linear layers on flat records: nn.Flatten() before"
                raise InputError("model", found, allowed)
            try:
                with torch.no_grad():
                    values = part(values)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                found = f"{name} fails on records of shape {tuple(x.shape[1:])}: {error}"
                raise InputError("model", found, "a network that takes the records") from None
            if not isinstance(values, Tensor):
                raise InputError("model", f"{name} that gives a {type(values).__name__}", ALLOWED)
            if len(values) != records:
                raise InputError("model", f"{name} that mixes records", ALLOWED)
    return values.shape[1]


def redrawn(network: Network, generator: torch.Generator) -> None:
    """Draw all parameters afresh, as torch does when a layer is made; in place."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        for part in network:
            if isinstance(part, nn.Linear | nn.Conv2d):
                part.reset_parameters()
