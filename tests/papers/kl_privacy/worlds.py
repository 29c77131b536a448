"""What tests/contract reads of kl_privacy: records to show, and worlds of true and false claims."""

from functools import partial

from kl_sample_records import RECORDS, SETTINGS
from kl_world import REFUTING, changed, paper, true_groups

SHOWN = {name: lambda make=make: (make(), SETTINGS) for name, make in RECORDS.items()}
FALSE = {entry: partial(changed, change) for entry, change in REFUTING.items()}


def world():
    """Records in which every entry of the paper's claims is reproduced."""
    return paper(true_groups())
