"""Settings that send an attacked record through every way the engine computes clipped gradients.

A network, all records and the canary among them, whose label the neighbours disagree on. Of two
classes the labels' gradients are opposite, whatever the network: each moves the sum of clipped
gradients by the clip bound, one this way and one that way, which is as far apart as replacing a
record may move it.

Where a norm comes from Gram matrices the canary's activations share an offset that the output does
not see. Its gradient is what is left when terms of the offset's square cancel; a norm that loses
those digits lets it into the sum unclipped. What the engine does about such a record may also clip
it further than it has to, and then its share says little about the noise: there a second phase
trains the head, whose gradient is no such difference.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.core.seeds import generator, seed
from dpatlas.models.build import initialise, normals
from dpatlas.models.lora import Adapted, lora_parameters, with_lora
from dpatlas.models.network import Network
from dpatlas.models.vit import Attention, ClassToken, First, Offset, Tokens
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.samplers import Cyclic, FullBatch
from dpatlas.privacy.training import Augmentation, TrainingPhase

CLASSES = 2
CANARY = 0
# Far below the norm of any record's gradient, so that the clip always acts.
CLIP = 1e-3
# Of activations that share it, the squares have 12 digits and float32 has 7.
OFFSET = 1e6
# Weights hardly move: the attacker computes the sums of a step once for all runs.
LR = 1e-9
# Names of axes of the seeds.
INIT: dict[str, Any] = {"key": "audit", "run": 0, "base_seed": 0}


@dataclass(frozen=True)
class Setting:
    """What is attacked by its name: `records` of `shape`, the canary the first of them.

    offset: added to every entry of the canary.
    """

    name: str
    network: Callable[[], nn.Module]
    shape: tuple[int, ...]
    records: int
    phases: tuple[TrainingPhase, ...]
    augmentation: Augmentation | None = None
    offset: float = 0.0

    def neighbours(self) -> list[tuple[Tensor, Tensor]]:
        """Records (records, *shape) and labels of D and of D'."""
        draws = generator(seed("audit", use="kernel records"))
        x = torch.from_numpy(draws.standard_normal((self.records, *self.shape), dtype="float32"))
        x[CANARY] += self.offset
        labels = torch.arange(self.records) % CLASSES
        other = labels.clone()
        other[CANARY] = 1 - labels[CANARY]
        return [(x, labels), (x, other)]


class Contrast(nn.Module):
    """Half of the positions less the other half: what they share falls out."""

    def forward(self, x: Tensor) -> Tensor:
        """(records, positions, features) to (records, features)."""
        return (x[:, ::2] - x[:, 1::2]).sum(1)


def linear_over_positions() -> Network:
    """Four positions of 16 features: a Gram norm."""
    parts = [("positions", nn.Linear(16, 16, bias=False)), ("contrast", Contrast())]
    return _initialised(Network([*parts, ("head", nn.Linear(16, CLASSES))]))


def convolution_of_few_positions() -> Network:
    """Four positions of 3x3 patches at stride 2: a Gram norm."""
    parts = [
        ("convolution", nn.Conv2d(16, 48, 3, stride=2, bias=False)),
        ("tokens", Tokens()),
        ("contrast", Contrast()),
    ]
    return _initialised(Network([*parts, ("head", nn.Linear(48, CLASSES))]))


def convolutions_in_groups() -> Network:
    """Gradients of each record, all in one call: strided, grouped, dilated; GroupNorm."""
    parts = [
        ("image", nn.Unflatten(1, (2, 6, 6))),
        ("strided", nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)),
        ("norm", nn.GroupNorm(2, 4)),
        ("relu", nn.ReLU()),
        ("dilated", nn.Conv2d(4, 6, (3, 2), dilation=(1, 2), padding=1)),
        ("pool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
    ]
    return _initialised(Network([*parts, ("head", nn.Linear(6, CLASSES))]))


def large_convolution() -> Network:
    """A call for each record's gradient, and more weights than numpy draws the noise of."""
    parts = [
        ("convolution", nn.Conv2d(64, 64, 3, padding=1, bias=False)),
        ("pool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
    ]
    return _initialised(Network([*parts, ("head", nn.Linear(64, CLASSES, bias=False))]))


def transformer() -> Network:
    """A vision transformer's first layers: norms from Gram matrices and from gradients."""
    parts = [
        ("image", nn.Unflatten(1, (1, 4, 4))),
        ("patches", nn.Conv2d(1, 12, 2, 2)),
        ("tokens", Tokens()),
        ("class_token", ClassToken(12)),
        ("position", Offset(5, 12)),
        ("norm", nn.LayerNorm(12)),
        ("attention", Attention(12, heads=2)),
        ("first", First()),
    ]
    return _initialised(Network([*parts, ("head", nn.Linear(12, CLASSES))]))


def transformer_with_lora() -> Network:
    """The same, frozen, with branches of rank 2 that are not at the start of their training."""
    adapted = with_lora(transformer(), 2, **INIT)
    with torch.no_grad():
        for path, module in adapted.named_modules():
            if isinstance(module, Adapted):
                module.up.weight.copy_(normals(module.up.weight, f"{path}.up.weight", **INIT))
    return adapted


def _initialised(network: Network) -> Network:
    initialise(network, **INIT)
    return network


def _offset(layer: str, records: int) -> tuple[TrainingPhase, ...]:
    """The offset canary in a layer under much noise, then a head that is trained alone."""
    sampler = FullBatch(records)
    return tuple(
        TrainingPhase(sampler, noise, CLIP, 1, LR, trainable=(name,))
        for name, noise in ((layer, 10.0), ("head", 2.1))
    )


# As everywhere in the audit the noise is such that half of it is caught.
SETTINGS = {
    each.name: each
    for each in (
        Setting(
            "linear-positions-offset",
            linear_over_positions,
            (4, 16),
            4,
            _offset("positions", 4),
            offset=OFFSET,
        ),
        Setting(
            "convolution-offset",
            convolution_of_few_positions,
            (16, 5, 5),
            4,
            _offset("convolution", 4),
            offset=OFFSET,
        ),
        Setting(
            "convolution-views",
            convolutions_in_groups,
            (72,),
            6,
            (TrainingPhase(Cyclic(6, 3), 2.0, CLIP, 1, LR, max_physical_batch=2),),
            augmentation=ShiftAndFlip((2, 6, 6), views=2, padding=1, flip=True),
        ),
        Setting(
            "convolution-large",
            large_convolution,
            (64, 8, 8),
            2,
            (TrainingPhase(FullBatch(2), 2.0, CLIP, 1, LR),),
        ),
        Setting(
            "transformer-adam",
            transformer,
            (16,),
            4,
            (TrainingPhase(FullBatch(4), 2.8, CLIP, 2, LR, optimizer="adam"),),
        ),
        Setting(
            "transformer-lora",
            transformer_with_lora,
            (16,),
            4,
            tuple(
                TrainingPhase(FullBatch(4), 2.8, CLIP, 1, LR, trainable=names, clipping="per-layer")
                for names in (("head",), lora_parameters(transformer_with_lora()))
            ),
        ),
    )
}
