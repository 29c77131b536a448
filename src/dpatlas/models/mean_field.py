"""Mean-field Gaussian networks: independent normals over the parameters of an ordinary network.

The networks and initial means are those of PAC-Bayes with backprop (Perez-Ortiz et al., 2021), on
which max_information's experiments build. A parameter's deviation is sigma = log(1 + e^rho).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import ndtr, ndtri
from torch import Tensor, nn

from dpatlas.base.guard import checked, one_of, real
from dpatlas.base.seeds import generator, seed
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.certificates import gaussian_kl
from dpatlas.models.build import untrained
from dpatlas.models.network import Network, mlp

# Initial means are truncated at this many standard deviations.
CUT = 2.0


def nine_layer_cnn(image_shape: Sequence[int] = (3, 32, 32), outputs: int = 10) -> Network:
    """Six 3x3 convolutions of 32 to 256 channels in pairs, each pair pooled, and three layers.

    All with biases and ReLU, no normalisation; 5,851,338 parameters for ten classes of CIFAR-10.
    Flat records (records, channels height width).

    Raises InputError for images whose sides three halvings do not divide.
    """
    channels, height, width = image_shape
    if height % 8 or width % 8:
        raise InputError("image_shape", f"{height} x {width}", "multiples of 8 for bayes-cnn9")
    parts: list[tuple[str, nn.Module]] = [("image", nn.Unflatten(1, tuple(image_shape)))]
    for index, (into, out) in enumerate(pairwise([channels, 32, 64, 128, 128, 256, 256]), start=1):
        parts += [(f"conv{index}", nn.Conv2d(into, out, 3, padding=1)), (f"relu{index}", nn.ReLU())]
        if index % 2 == 0:
            parts.append((f"pool{index // 2}", nn.MaxPool2d(2)))
    parts.append(("flatten", nn.Flatten()))
    sizes = [256 * (height // 8) * (width // 8), 1024, 512]
    for index, (into, out) in enumerate(pairwise(sizes), start=7):
        parts += [(f"linear{index}", nn.Linear(into, out)), (f"relu{index}", nn.ReLU())]
    return Network([*parts, ("head", nn.Linear(sizes[-1], outputs))])


NETWORKS: Mapping[str, Callable[..., Network]] = {"mlp": mlp, "bayes-cnn9": nine_layer_cnn}


@checked(name=one_of(*NETWORKS))
def initial_network(
    name: str,
    image_shape: Sequence[int],
    outputs: int,
    *,
    key: str,
    run: int,
    base_seed: int,
    **options: Any,
) -> Network:
    """Network `name` on the CPU, at the means of the data-independent prior.

    Weights are normal with standard deviation 1 / sqrt(fan in), cut off at two of them; biases 0.
    A weight's draws depend on (key, run, base_seed, its name, its shape) alone. `options`: `widths`
    of the MLP.

    Raises InputError for an unknown name or option.
    """
    network = untrained(NETWORKS[name], name, image_shape, outputs, options)
    with torch.no_grad():
        for path, parameter in network.named_parameters():
            if path.endswith("bias"):
                parameter.zero_()
                continue
            draws = generator(seed(key, use="init", run=run, base=base_seed, layer=path))
            normals = truncated_normals(draws, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(normals / math.sqrt(parameter[0].numel())))
    return network


def truncated_normals(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """N(0, 1) given that it lies within `CUT` of 0, by inversion; float64."""
    tail = ndtr(-CUT)
    return ndtri(tail + draws.random(shape) * (1 - 2 * tail))


def flat_values(network: nn.Module) -> Tensor:
    """All parameters of a network in its order, (parameters,), a copy."""
    return torch.cat([value.detach().flatten() for value in network.parameters()])


class MeanField:
    """Independent N(mean, softplus(rho)^2) over the parameters of `network`.

    mean, rho (parameters,) float32, in the order of `network.named_parameters()`. The network gives
    the shapes; its own values take no part.
    """

    def __init__(self, network: Network, mean: Tensor, rho: Tensor):
        self.network, self.mean, self.rho = network, mean, rho
        self.shapes = {name: value.shape for name, value in network.named_parameters()}
        self.sizes = [prod(shape) for shape in self.shapes.values()]
        if mean.shape != rho.shape or mean.shape != (sum(self.sizes),):
            found = f"shapes {tuple(mean.shape)} and {tuple(rho.shape)}"
            raise InputError("mean and rho", found, f"({sum(self.sizes)},), the network's")

    @classmethod
    @checked(deviation=real(gt=0))
    def around(cls, network: Network, mean: Tensor, deviation: float) -> "MeanField":
        """N(mean, deviation^2 I): a prior, and where its posterior starts; copies `mean`."""
        return cls(network, mean.clone(), torch.full_like(mean, rho_of(deviation)))

    @property
    def deviation(self) -> Tensor:
        """Standard deviations, (parameters,)."""
        return F.softplus(self.rho)

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of `flat` (..., parameters) as parameters, by name, each (..., *its shape)."""
        rows = flat.split(self.sizes, dim=-1)
        return {
            name: part.unflatten(-1, shape)
            for (name, shape), part in zip(self.shapes.items(), rows, strict=True)
        }

    def kl(self, centre: Tensor, deviation: float) -> float:
        """KL from N(centre, deviation^2 I), nats, in float64; nan or inf if training diverged."""
        mean, scale, middle = (
            values.double().cpu().numpy() for values in (self.mean, self.deviation, centre)
        )
        # Of a deviation that underflowed, or of numbers that are none, there is no normal law.
        if not (np.isfinite(mean).all() and np.isfinite(scale).all() and scale.all()):
            return math.inf
        return float(np.sum(gaussian_kl(mean - middle, scale, deviation)))


def rho_of(deviation: float) -> float:
    """rho with log(1 + e^rho) = deviation."""
    return deviation + math.log(-math.expm1(-deviation))
