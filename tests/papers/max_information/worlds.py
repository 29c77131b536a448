"""What tests/contract reads of max_information: records to show, and true and false worlds.

By arithmetic on Table 1 and the formulas alone, whatever records say, maxinf-2b is false in every
world, and the entries of `PROVEN_BY_ARITHMETIC` are true in every world.
"""

from maxinf_sample_records import RECORDS, typed
from maxinf_world import (
    PROVEN_BY_ARITHMETIC,
    REFUTED_BY_ARITHMETIC,
    REFUTING,
    changed,
    paper,
    true_groups,
)

__all__ = ["FALSE", "PROVEN_BY_ARITHMETIC", "REFUTED_BY_ARITHMETIC", "SHOWN", "world"]

SHOWN = {name: lambda make=make: (typed(make()), {}) for name, make in RECORDS.items()}
FALSE = {entry: lambda change=change: paper(changed(change)) for entry, change in REFUTING.items()}


def world():
    """Records in which every entry is reproduced, except `REFUTED_BY_ARITHMETIC`."""
    return paper(true_groups())
