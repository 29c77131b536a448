"""The mechanisms that an audit attacks, by name: the list that settings, cost and jobs share.

Loads without torch; `jobs.mechanisms` implements the mechanism behind each name.
"""

# Name and sentence of each.
MECHANISMS = {
    "dp-sgd-poisson": "DP-SGD, Poisson batches",
    "dp-sgd-fixed-size": "DP-SGD, batches without replacement",
    "dp-sgd-shuffled": "DP-SGD, disjoint batches of an epoch",
    "dp-sgd-cyclic": "DP-SGD, the same disjoint batches in every epoch",
    "dp-sgd-full-batch": "DP-SGD, full batch",
    "logistic-poisson": "closed-form softmax regression, Poisson batches",
    "logistic-full-batch": "closed-form softmax regression, full batch",
    "lp-then-fft": "head first, then all layers: two phases, one ledger",
    "linear-positions-offset": "DP-SGD, a linear layer over positions by Gram norms, then the head",
    "convolution-offset": "DP-SGD, a strided convolution by Gram norms, then the head",
    "convolution-views": "DP-SGD, averaged views in chunks: strided, grouped, dilated "
    "convolutions, GroupNorm",
    "convolution-large": "DP-SGD, a convolution by one call a record, its noise by Box-Muller",
    "transformer-adam": "DP-Adam, a vision transformer: tokens, LayerNorm, attention",
    "transformer-lora": "DP-SGD clipped per layer: the head, then a vision transformer's LoRA "
    "branches",
    "dp-sgld": "Langevin SGD, batches without replacement",
    "dp-sgld-full-batch": "Langevin SGD, full batch",
    "repaired-dp-sgld-cyclic": "Langevin SGD, the same disjoint batches in every epoch",
    "feature-matrix": "one noisy clipped gradient of a whole first layer",
    "feature-direction": "noisy mean of clipped y x",
    "feature-second-layer": "full-batch noisy descent on a second layer",
}
# Factors on the number of runs asked for, of mechanisms whose steps take at most a tenth of the
# others' time. 600 runs are too few to see that the claim on dp-sgld fails: it takes 2400.
MORE_RUNS = {
    "dp-sgld": 6,
    **dict.fromkeys(("dp-sgld-full-batch", "repaired-dp-sgld-cyclic"), 2),
    **dict.fromkeys(("feature-matrix", "feature-direction", "feature-second-layer"), 10),
}
