"""Low-rank adaptation (LoRA; Hu et al., 2022): frozen layers, each with a trained narrow branch."""

import copy
from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dpatlas.base.guard import checked, integer, real
from dpatlas.errors import InputError
from dpatlas.models.build import normals

Model = TypeVar("Model", bound=nn.Module)
ADAPTED = (nn.Linear, nn.Conv2d)
HEAD = ("head",)


class Adapted(nn.Module):
    """A layer with a branch beside it: base(x) + scale up(down(x)).

    down: the base's map, to `rank` features and without a bias; up: from there to the base's
    outputs, of a convolution position by position. The sum of both is one layer of the base's
    kind, whose weight differs from the base's by a matrix (out, in kernel) of rank `rank` at most.
    """

    down: nn.Linear | nn.Conv2d
    up: nn.Linear | nn.Conv2d

    def __init__(self, base: nn.Linear | nn.Conv2d, rank: int, scale: float):
        super().__init__()
        self.base, self.scale = base, scale
        weight = base.weight
        kind: dict[str, Any] = {"bias": False, "device": weight.device, "dtype": weight.dtype}
        match base:
            case nn.Linear():
                self.down = nn.Linear(base.in_features, rank, **kind)
                self.up = nn.Linear(rank, base.out_features, **kind)
            case nn.Conv2d():
                names = ("kernel_size", "stride", "padding", "dilation")
                geometry: dict[str, Any] = {name: getattr(base, name) for name in names}
                self.down = nn.Conv2d(base.in_channels, rank, **geometry, **kind)
                self.up = nn.Conv2d(rank, base.out_channels, 1, **kind)

    def forward(self, x: Tensor) -> Tensor:
        """What the base takes to what it gives."""
        return self.base(x) + self.scale * self.up(self.down(x))


@checked(rank=integer(ge=1), scale=real(gt=0))
def with_lora(
    network: Model,
    rank: int,
    *,
    key: str = "lora",
    run: int = 0,
    base_seed: int = 0,
    scale: float = 1.0,
    whole: Sequence[str] = HEAD,
) -> Model:
    """A copy of `network` in which every linear layer and convolution is `Adapted`.

    rank: of every branch. scale: the factor of its output. whole: modules that are trained
    themselves instead, such as a head. `down` is N(0, 1 / fan in), its draws keyed by (key, run,
    base_seed), and `up` is zero, so the copy computes what the network computes. Only branches and
    `whole` are left trainable (`lora_parameters`); the weights of the network are those of the
    copy's `base` layers, biases, norms and tokens.

    Raises InputError, which names the layer, for a rank above a layer's width (its outputs, or the
    inputs of one of them where these are fewer), for a convolution with groups, and for a name in
    `whole` that the network does not have.
    """
    copied = copy.deepcopy(network)
    _check_whole(copied, whole)
    layers = {
        path: layer
        for path, layer in copied.named_modules()
        if isinstance(layer, ADAPTED)
        and not any(f"{path}.".startswith(f"{name}.") for name in whole)
    }
    for path, layer in layers.items():
        _check(path, layer, rank)
    for path, layer in layers.items():
        with torch.random.fork_rng(devices=[]):
            adapted = Adapted(layer, rank, scale)
        down = adapted.down.weight
        draws = normals(down, f"{path}.down.weight", key=key, run=run, base_seed=base_seed)
        with torch.no_grad():
            down.copy_(draws * prod(down.shape[1:]) ** -0.5)
            adapted.up.weight.zero_()
        parent, _, name = path.rpartition(".")
        setattr(copied.get_submodule(parent), name, adapted)
    trained = set(lora_parameters(copied, whole))
    for name, parameter in copied.named_parameters():
        parameter.requires_grad_(name in trained)
    return copied


def lora_parameters(network: nn.Module, whole: Sequence[str] = HEAD) -> tuple[str, ...]:
    """Names of the parameters of all branches and of `whole`: what a training phase trains.

    Raises InputError for a name in `whole` that the network does not have.
    """
    _check_whole(network, whole)
    branches = tuple(
        f"{path}.{part}.weight"
        for path, module in network.named_modules()
        if isinstance(module, Adapted)
        for part in ("down", "up")
    )
    kept = (
        f"{name}.{parameter}"
        for name in whole
        for parameter, _ in network.get_submodule(name).named_parameters()
    )
    return (*branches, *kept)


def _check_whole(network: nn.Module, whole: Sequence[str]) -> None:
    for name in whole:
        if name not in dict(network.named_modules()):
            raise InputError("whole", repr(name), "modules of the network")


def _check(path: str, layer: nn.Linear | nn.Conv2d, rank: int) -> None:
    if isinstance(layer, nn.Conv2d) and layer.groups > 1:
        raise InputError(f"layer {path}", f"{layer.groups} groups", "a convolution of one group")
    # An output's inputs, over the kernel: those of a convolution of one channel are its pixels.
    width = min(len(layer.weight), prod(layer.weight.shape[1:]))
    if rank > width:
        raise InputError("rank", rank, f"at most {width}, the width of layer {path}")
