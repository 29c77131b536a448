"""What tests/contract reads of dp_sgld: records to show, and worlds of true and false claims."""

from functools import partial

from sgld_records import growing_excess_record, growing_losses_record, utility_record
from sgld_world import CHANGES, accuracy_record, changed, groups

from dpatlas.evidence.comparisons import PaperRecords

SHOWN = {
    "sgld_privacy_loss": lambda: ([growing_losses_record()], {}),
    "sgld_counterexample": lambda: ([growing_excess_record()], {}),
    "sgld_utility": lambda: ([utility_record()], {}),
    "sgld_long_training": lambda: (groups()["long_training"], {}),
    "sgld_accuracy_constant": lambda: ([accuracy_record(0)], {}),
    "sgld_accuracy_decreasing": lambda: ([accuracy_record(0)], {}),
    "sgld_finetune": lambda: (groups()["finetune"], {}),
    "sgld_constants": lambda: ([accuracy_record(0)], {}),
    "sgld_published": lambda: ([growing_losses_record(), accuracy_record(0)], {}),
}
# d counts parameters in the theorems, and the printed column follows from the number of classes.
REFUTED_BY_ARITHMETIC = {"sgld-5c"}
# They follow from printed numbers; test_claims_dp_sgld.py shows that other numbers refute them.
PROVEN_BY_ARITHMETIC = {"sgld-5a", "sgld-5b", "sgld-8a", "sgld-8b"}
FALSE = {entry: partial(changed, change) for entry, change in CHANGES.items()}


def world():
    """Records in which every entry is reproduced but for `REFUTED_BY_ARITHMETIC`."""
    return PaperRecords({}, groups())
