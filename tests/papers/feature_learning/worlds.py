"""What tests/contract reads of feature_learning: records to show, worlds of true and false claims.

By formulas alone, whatever the records, the entries of `PROVEN_BY_ARITHMETIC` are reproduced and
those of `REFUTED_BY_ARITHMETIC` are not.
"""

from feature_sample_records import all_records
from feature_world import (
    PROVEN_BY_ARITHMETIC,
    REFUTED_BY_ARITHMETIC,
    REFUTING,
    changed,
    paper,
    true_groups,
)

__all__ = ["FALSE", "PROVEN_BY_ARITHMETIC", "REFUTED_BY_ARITHMETIC", "SHOWN", "world"]

SHOWN = {
    "feature_overlap": lambda: (all_records()[:-1], {}),
    "feature_risk": lambda: (all_records()[:-1], {}),
    "feature_risk_table": lambda: (all_records(), {}),
}
FALSE = {entry: lambda change=change: paper(changed(change)) for entry, change in REFUTING.items()}


def world():
    """Records in which every entry is reproduced, except `REFUTED_BY_ARITHMETIC`."""
    return paper(true_groups())
