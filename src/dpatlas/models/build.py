"""Networks by name, with initial weights that are a function of named axes.

torch's own initialisation draws from one global generator, of whose seed only 32 bits are kept, so
a layer's weights depend on all layers before it. Here every parameter has a key of its own.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from dpatlas.base.guard import checked, integer
from dpatlas.base.networks import NETWORKS
from dpatlas.base.seeds import generator, seed
from dpatlas.errors import InputError
from dpatlas.models.network import Network
from dpatlas.models.vit import ClassToken, Offset

# Networks that can be trained from initial weights.
NAMES = tuple(name for name, entry in NETWORKS.items() if entry.weights is None)
# Standard deviation of the initial values of tokens and offsets.
TOKEN_DEVIATION = 0.02


@checked(outputs=integer(ge=1))
def build(
    name: str,
    image_shape: Sequence[int],
    outputs: int,
    *,
    key: str,
    run: int,
    base_seed: int,
    **options: Any,
) -> Network:
    """Network `name` on the CPU for flat records (records, channels height width), float32.

    Networks on images get a first part that restores `image_shape`. `options` go to the builder
    behind the name (`affine` of the small CNNs, `widths` of the MLP, `depth` of the ViT). Initial
    weights as in `initialise`.

    Raises InputError for an unknown name or option.
    """
    network = untrained(builder(name), name, image_shape, outputs, options)
    initialise(network, key=key, run=run, base_seed=base_seed)
    if NETWORKS[name].flat:
        return network
    image = nn.Unflatten(1, tuple(image_shape))
    return Network([("image", image), *network.named_children()])


def builder(name: str) -> Callable[..., Network]:
    """The function that builds network `name`; InputError for an unknown one."""
    if name not in NETWORKS:
        raise InputError("model", repr(name), "one of " + ", ".join(NETWORKS))
    module, _, function = NETWORKS[name].builder.partition(":")
    return getattr(importlib.import_module(module), function)


def untrained(
    make: Callable[..., Network],
    name: str,
    image_shape: Sequence[int],
    outputs: int,
    options: Mapping[str, Any],
) -> Network:
    """The network that `make` builds, called `name` in messages, with weights to be overwritten.

    Raises InputError for an option that `make` does not take.
    """
    known = set(inspect.signature(make).parameters) - {"image_shape", "outputs"}
    for option in sorted(set(options) - known):
        raise InputError(f"options of {name}", option, ", ".join(sorted(known)) or "none")
    # torch draws weights of its own here; its generator stays as it was.
    with torch.random.fork_rng(devices=[]):
        return make(image_shape=tuple(image_shape), outputs=outputs, **options)


def initialise(network: nn.Module, *, key: str, run: int, base_seed: int) -> None:
    """Set every parameter to its initial value, in place.

    Weights of convolutions and linear layers are N(0, 2 / fan in) (He et al., 2015), those of
    `head` N(0, 1 / fan in) (LeCun); tokens and offsets N(0, 0.02^2); biases 0; norms 1 and 0. The
    draws of a parameter depend on (key, run, base_seed, its name, its shape) and on nothing else:
    networks of the same run share them wherever name and shape agree.

    Raises InputError for a parameter in a leaf module of another type.
    """
    with torch.no_grad():
        for path, module in network.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                full = f"{path}.{name}" if path else name
                mean, deviation = _moments(path, module, name)
                parameter.fill_(mean)
                if deviation:
                    draws = normals(parameter, full, key=key, run=run, base_seed=base_seed)
                    parameter.add_(draws * float(np.float32(deviation)))


def normals(
    parameter: torch.Tensor, name: str, *, key: str, run: int, base_seed: int
) -> torch.Tensor:
    """N(0, 1) draws of a parameter's shape, keyed by its name and the run; float32 on the CPU."""
    draws = generator(seed(key, use="init", run=run, base=base_seed, layer=name))
    return torch.from_numpy(draws.standard_normal(tuple(parameter.shape), dtype=np.float32))


def _moments(path: str, module: nn.Module, name: str) -> tuple[float, float]:
    """Mean and standard deviation of a parameter's initial values."""
    match module:
        case nn.Linear() | nn.Conv2d():
            gain = 1 if path == "head" else 2
            fan_in = module.weight[0].numel()
            return (0.0, 0.0) if name == "bias" else (0.0, (gain / fan_in) ** 0.5)
        case nn.GroupNorm() | nn.LayerNorm():
            return (1.0, 0.0) if name == "weight" else (0.0, 0.0)
        case ClassToken() | Offset():
            return 0.0, TOKEN_DEVIATION
    allowed = "Linear, Conv2d, GroupNorm, LayerNorm, ClassToken, Offset"
    raise InputError(f"parameter {path}.{name}", f"in a {type(module).__name__}", allowed)
