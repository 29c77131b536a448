"""What tests/contract reads of feature_learning: records to show, worlds of true and false claims.

`BY_ARITHMETIC`: the verdicts of entries that follow from formulas alone, whatever the records.
"""

from feature_sample_records import all_records
from feature_world import BY_ARITHMETIC, REFUTING, changed, paper, true_groups

__all__ = ["BY_ARITHMETIC", "FALSE", "SHOWN", "world"]

SHOWN = {
    "feature_overlap": lambda: (all_records()[:-1], {}),
    "feature_risk": lambda: (all_records()[:-1], {}),
    "feature_risk_table": lambda: (all_records(), {}),
}
FALSE = {
    **{entry: lambda change=change: paper(changed(change)) for entry, change in REFUTING.items()},
    "feat-6b": lambda: world(),
}


def world():
    """Records in which every entry is reproduced but what `BY_ARITHMETIC` refutes."""
    return paper(true_groups())
