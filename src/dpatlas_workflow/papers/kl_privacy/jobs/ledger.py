"""kl_privacy: what jobs with runs share: ledger, convention of KL values, the watched record."""

from typing import Literal

from dpatlas.errors import InputError
from dpatlas_workflow.run.deals import Deals

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


def check_watched(watched: int, deals: Deals) -> None:
    """Raise InputError for a watched record that is none of the records of a run."""
    records = sum(deals.sizes.values())
    if watched >= records:
        raise InputError("kl_privacy.data.watched", watched, f"a position below {records}")
