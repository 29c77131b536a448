"""The mechanisms that an audit attacks, by name: the list that settings, cost and jobs share.

Loads without torch; `jobs.mechanisms` implements the mechanism behind each name.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A mechanism. sentence: what it does. runs: factor on the number of runs asked for.

    The factor is above 1 for mechanisms whose steps take at most a tenth of the others' time.
    """

    sentence: str
    runs: int = 1


MECHANISMS: Mapping[str, Entry] = {
    "dp-sgd-poisson": Entry("DP-SGD, Poisson batches"),
    "dp-sgd-fixed-size": Entry("DP-SGD, batches without replacement"),
    "dp-sgd-shuffled": Entry("DP-SGD, disjoint batches of an epoch"),
    "dp-sgd-cyclic": Entry("DP-SGD, the same disjoint batches in every epoch"),
    "dp-sgd-full-batch": Entry("DP-SGD, full batch"),
    "logistic-poisson": Entry("closed-form softmax regression, Poisson batches"),
    "logistic-full-batch": Entry("closed-form softmax regression, full batch"),
    "lp-then-fft": Entry("head first, then all layers: two phases, one ledger"),
    "linear-positions-offset": Entry(
        "DP-SGD, a linear layer over positions by Gram norms, then the head"
    ),
    "convolution-offset": Entry("DP-SGD, a strided convolution by Gram norms, then the head"),
    "convolution-views": Entry(
        "DP-SGD, averaged views in chunks: strided, grouped, dilated convolutions, GroupNorm"
    ),
    "convolution-large": Entry(
        "DP-SGD, a convolution by one call a record, its noise by Box-Muller"
    ),
    "transformer-adam": Entry("DP-Adam, a vision transformer: tokens, LayerNorm, attention"),
    "transformer-lora": Entry(
        "DP-SGD clipped per layer: the head, then a vision transformer's LoRA branches"
    ),
    # 600 runs are too few to see that the claim on dp-sgld fails: it takes 2400.
    "dp-sgld": Entry("Langevin SGD, batches without replacement", runs=6),
    "dp-sgld-full-batch": Entry("Langevin SGD, full batch", runs=2),
    "repaired-dp-sgld-cyclic": Entry(
        "Langevin SGD, the same disjoint batches in every epoch", runs=2
    ),
    "feature-matrix": Entry("one noisy clipped gradient of a whole first layer", runs=10),
    "feature-direction": Entry("noisy mean of clipped y x", runs=10),
    "feature-second-layer": Entry("full-batch noisy descent on a second layer", runs=10),
}
