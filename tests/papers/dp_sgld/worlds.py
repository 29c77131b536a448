"""What tests/contract reads of dp_sgld: records to show, and worlds of true and false claims."""

from functools import partial

from sgld_records import growing_excess_record, growing_losses_record, utility_record
from sgld_world import CHANGES, accuracy_record, changed, groups, protocol_record

from dpatlas_workflow.evidence.comparisons import PaperRecords

SHOWN = {
    "sgld_privacy_loss": lambda: ([growing_losses_record()], {}),
    "sgld_counterexample": lambda: ([growing_excess_record()], {}),
    "sgld_utility": lambda: ([utility_record()], {}),
    "sgld_long_training": lambda: (groups()["long_training"], {}),
    "sgld_along_n": lambda: (groups()["protocol"], {}),
    "sgld_accuracy_constant": lambda: ([protocol_record(4000), accuracy_record(0)], {}),
    "sgld_accuracy_decreasing": lambda: ([protocol_record(4000), accuracy_record(0)], {}),
    "sgld_finetune": lambda: (groups()["finetune"], {}),
    "sgld_constants": lambda: ([accuracy_record(0)], {}),
    "sgld_published": lambda: ([growing_losses_record(), accuracy_record(0)], {}),
}
# d counts parameters in the theorems; the printed column is near that for the number of classes,
# and equal to it in one row.
REFUTED_BY_ARITHMETIC = {"sgld-5b", "sgld-5c"}
# They follow from printed numbers, or from settings alone; test_claims_dp_sgld.py shows that other
# numbers refute them.
PROVEN_BY_ARITHMETIC = {"sgld-5a", "sgld-8a", "sgld-8b", "sgld-14"}
# Largest peak of resident memory by kind of job, MB, at the pilot tier; see tests/base.
MEASURED_MB = {
    "protocol": 811,
    "protocol_tuning": 811,
    "accuracy_tuning": 806,
    "finetune_tuning": 852,
}
FALSE = {entry: partial(changed, change) for entry, change in CHANGES.items()}


def world():
    """Records in which every entry is reproduced but for `REFUTED_BY_ARITHMETIC`."""
    return PaperRecords({}, groups())
