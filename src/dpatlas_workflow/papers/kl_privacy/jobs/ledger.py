"""kl_privacy: the privacy ledger that all runs share, and the convention of their KL values."""

from typing import Literal

CONVENTION: Literal["exact"] = "exact"
LEDGER = {
    "mechanism": "full-batch noisy gradient descent without clipping; whole trajectory released",
    "neighbour_relation": "remove one training record, or add one of the held-out records",
    "sampler": "full batch",
    "accountant": "Theorem E.1 along our own trajectories, averaged over runs",
    "epsilon": None,
    "delta": None,
    "guaranteed": "nothing: gradients are not clipped, so no bound holds for every data set",
    "claimed": "the KL divergence at this data set, worst case over the listed neighbours",
    "clip": None,
    "chosen_on_private_data": "nothing",
    "holds_for": "secret seeds and exact arithmetic",
}
