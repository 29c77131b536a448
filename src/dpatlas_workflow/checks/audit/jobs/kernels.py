"""Networks and records that attack every way in which the engine computes clipped gradients.

The neighbours differ in the label of one record, the canary. With two classes the gradients of the
two labels are opposite for any network: one moves the sum of clipped gradients by the clip bound in
some direction, the other by as much in the opposite one. That is the sensitivity of replacing a
record.

Where norms come from Gram matrices, all activations of the canary share an offset that does not
reach the output. Its gradient is a difference of terms of the order of the offset's square, and a
norm that loses their digits lets the canary into the sum unclipped. The engine's remedy may clip
such a record further than necessary, and then its contribution says little about the noise;
therefore a second phase trains the head, whose gradient is no such difference.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.accounting.samplers import Cyclic, FullBatch
from dpatlas.base.seeds import generator, seed
from dpatlas.models.build import initialise, normals
from dpatlas.models.lora import Adapted, lora_parameters, with_lora
from dpatlas.models.network import Network
from dpatlas.models.vit import ClassToken, First, Offset, SelfAttention, Tokens
from dpatlas.privacy.augmentation import Augmentation, ShiftAndFlip
from dpatlas.privacy.phases import TrainingPhase

CLASSES = 2
CANARY = 0
# Far below the norm of any record's gradient, so that the clip always acts.
CLIP = 1e-3
# Squares of activations with this offset have 12 digits; float32 has 7.
OFFSET = 1e6
# So small that the attacker can compute the sums of a step once for all runs.
LR = 1e-9
# Axes of the seeds of initial weights.
INIT: dict[str, Any] = {"key": "audit", "run": 0, "base_seed": 0}


@dataclass(frozen=True)
class AttackedNetwork:
    """A network under attack. `records` records of `shape`; the canary is the first of them.

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
    """Sum of the even positions less the sum of the odd ones: a common offset cancels."""

    def forward(self, x: Tensor) -> Tensor:
        """(records, positions, features) to (records, features)."""
        return (x[:, ::2] - x[:, 1::2]).sum(1)


def linear_over_positions() -> Network:
    """A linear layer over four positions of 16 features, with norms from Gram matrices."""
    parts = [("positions", nn.Linear(16, 16, bias=False)), ("contrast", Contrast())]
    return _initialised(Network([*parts, ("head", nn.Linear(16, CLASSES))]))


def convolution_of_few_positions() -> Network:
    """A convolution with four 3x3 patches at stride 2, with norms from Gram matrices."""
    parts = [
        ("convolution", nn.Conv2d(16, 48, 3, stride=2, bias=False)),
        ("tokens", Tokens()),
        ("contrast", Contrast()),
    ]
    return _initialised(Network([*parts, ("head", nn.Linear(48, CLASSES))]))


def convolutions_in_groups() -> Network:
    """Strided, grouped and dilated convolutions with GroupNorm; one call for all gradients."""
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
    """A convolution with one call per record's gradient, and too many weights for numpy's noise."""
    parts = [
        ("convolution", nn.Conv2d(64, 64, 3, padding=1, bias=False)),
        ("pool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
    ]
    return _initialised(Network([*parts, ("head", nn.Linear(64, CLASSES, bias=False))]))


def transformer() -> Network:
    """First layers of a vision transformer, with norms from Gram matrices and from gradients."""
    parts = [
        ("image", nn.Unflatten(1, (1, 4, 4))),
        ("patches", nn.Conv2d(1, 12, 2, 2)),
        ("tokens", Tokens()),
        ("class_token", ClassToken(12)),
        ("position", Offset(5, 12)),
        ("norm", nn.LayerNorm(12)),
        ("attention", SelfAttention(12, heads=2)),
        ("first", First()),
    ]
    return _initialised(Network([*parts, ("head", nn.Linear(12, CLASSES))]))


def transformer_with_lora() -> Network:
    """`transformer`, frozen, with LoRA branches of rank 2 whose weights are all away from zero."""
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
    """Phases for a canary with an offset: `layer` under much noise, then the head alone."""
    sampler = FullBatch(records)
    return tuple(
        TrainingPhase(sampler, noise, CLIP, 1, LR, trainable=(name,))
        for name, noise in ((layer, 10.0), ("head", 2.1))
    )


# As everywhere in the audit, the noise is chosen so that noise at half scale is caught.
ATTACKED_NETWORKS = {
    attacked.name: attacked
    for attacked in (
        AttackedNetwork(
            "linear-positions-offset",
            linear_over_positions,
            (4, 16),
            4,
            _offset("positions", 4),
            offset=OFFSET,
        ),
        AttackedNetwork(
            "convolution-offset",
            convolution_of_few_positions,
            (16, 5, 5),
            4,
            _offset("convolution", 4),
            offset=OFFSET,
        ),
        AttackedNetwork(
            "convolution-views",
            convolutions_in_groups,
            (72,),
            6,
            (TrainingPhase(Cyclic(6, 3), 2.0, CLIP, 1, LR, max_physical_batch=2),),
            augmentation=ShiftAndFlip((2, 6, 6), views=2, padding=1, flip=True),
        ),
        AttackedNetwork(
            "convolution-large",
            large_convolution,
            (64, 8, 8),
            2,
            (TrainingPhase(FullBatch(2), 2.0, CLIP, 1, LR),),
        ),
        AttackedNetwork(
            "transformer-adam",
            transformer,
            (16,),
            4,
            (TrainingPhase(FullBatch(4), 2.8, CLIP, 2, LR, optimizer="adam"),),
        ),
        AttackedNetwork(
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
