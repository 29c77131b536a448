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
# Arithmetic on the printed table refutes it, whatever the records: d counts parameters.
NEVER_REPRODUCED = {"sgld-5c"}
# These follow from printed numbers alone, so no world of records makes them false; that another
# print would is test_claims_dp_sgld.py's.
OF_PRINTED_NUMBERS = {"sgld-5a", "sgld-5b", "sgld-8a", "sgld-8b"}
FALSE = {entry: partial(changed, change) for entry, change in CHANGES.items()}
FALSE |= {entry: lambda: world() for entry in NEVER_REPRODUCED}


def world():
    """Records in which every entry is reproduced but for `NEVER_REPRODUCED`."""
    return PaperRecords({}, groups())
