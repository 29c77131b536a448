"""The mechanisms that an audit attacks, by name: the list that settings, cost and jobs share.

Loads without torch; `jobs.mechanisms` implements the mechanism behind each name.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MechanismEntry:
    """A mechanism. sentence: what it does. runs: factor on the number of runs asked for.

    The factor is above 1 for mechanisms whose steps take at most a tenth of the others' time.
    """

    sentence: str
    runs: int = 1


MECHANISMS: Mapping[str, MechanismEntry] = {
    "dp-sgd-poisson": MechanismEntry("DP-SGD, Poisson batches"),
    "dp-sgd-fixed-size": MechanismEntry("DP-SGD, batches without replacement"),
    "dp-sgd-shuffled": MechanismEntry("DP-SGD, disjoint batches of an epoch"),
    "dp-sgd-cyclic": MechanismEntry("DP-SGD, the same disjoint batches in every epoch"),
    "dp-sgd-full-batch": MechanismEntry("DP-SGD, full batch"),
    "logistic-poisson": MechanismEntry("closed-form softmax regression, Poisson batches"),
    "logistic-full-batch": MechanismEntry("closed-form softmax regression, full batch"),
    "lp-then-fft": MechanismEntry("head first, then all layers: two phases, one ledger"),
    "linear-positions-offset": MechanismEntry(
        "DP-SGD, a linear layer over positions by Gram norms, then the head"
    ),
    "convolution-offset": MechanismEntry(
        "DP-SGD, a strided convolution by Gram norms, then the head"
    ),
    "convolution-views": MechanismEntry(
        "DP-SGD, averaged views in chunks: strided, grouped, dilated convolutions, GroupNorm"
    ),
    "convolution-large": MechanismEntry(
        "DP-SGD, a convolution by one call a record, its noise by Box-Muller"
    ),
    "transformer-adam": MechanismEntry(
        "DP-Adam, a vision transformer: tokens, LayerNorm, attention"
    ),
    "transformer-lora": MechanismEntry(
        "DP-SGD clipped per layer: the head, then a vision transformer's LoRA branches"
    ),
    # 600 runs are too few to see that the claim on dp-sgld fails: it takes 2400.
    "dp-sgld": MechanismEntry("Langevin SGD, batches without replacement", runs=6),
    "dp-sgld-full-batch": MechanismEntry("Langevin SGD, full batch", runs=2),
    "repaired-dp-sgld-cyclic": MechanismEntry(
        "Langevin SGD, the same disjoint batches in every epoch", runs=2
    ),
    "feature-matrix": MechanismEntry("one noisy clipped gradient of a whole first layer", runs=10),
    "feature-direction": MechanismEntry("noisy mean of clipped y x", runs=10),
    "feature-second-layer": MechanismEntry("full-batch noisy descent on a second layer", runs=10),
}
