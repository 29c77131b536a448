"""kl_privacy: the record whose KL is followed through all runs."""

from dpatlas.errors import InputError
from dpatlas_workflow.run.deals import Deals


def check_watched(watched: int, deals: Deals) -> None:
    """Raise InputError for a watched record that is none of the records of a run."""
    records = sum(deals.sizes.values())
    if watched >= records:
        raise InputError("kl_privacy.data.watched", watched, f"a position below {records}")
