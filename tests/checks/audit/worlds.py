"""Small records of attacks, canaries and trainings, as the table `audit` reads them."""

from dataclasses import asdict

import yaml
from figure_samples import sample_record
from small_jobs import NETWORK

from dpatlas.accounting.audit_statistics import ErrorRates, LowerBound, ProfileTest
from dpatlas.accounting.one_run import OneRunTest
from dpatlas.base.records import rows_of
from dpatlas_workflow.checks.audit.records.mechanism import MechanismSpec
from dpatlas_workflow.checks.audit.records.network import NetworkSpec

LEDGER = yaml.safe_load("""
{mechanism: DP-SGD in words, epsilon: 3.0, delta: 1.0e-5, claimed: null,
 sampler: {name: poisson, n: 32, expected_batch: 8.0, sample_rate: 0.25}}
""")
COMMON = {"key": "audit", "seed": 0, "noise_source": "keyed"}
ERRORS = {"false_positives": 1, "tested_without": 450, "false_negatives": 2, "tested_with": 450}
RATES = ErrorRates(runs=1200, threshold=0.0, above=True, **ERRORS, fpr_limit=0.02, fnr_limit=0.03)


def bound(**changes):
    values = {"epsilon": 0.8, "delta": 0.01, "level": 0.95, "runs": 1200, "ceiling": 5.0}
    values |= {"method": "repeated runs", "evidence": RATES}
    return asdict(LowerBound(**{**values, **changes}))


def excess(value, delta):
    values = {"epsilon": 1.0, "level": 0.999, "runs": 1200, "ceiling": 4.0, "evidence": RATES}
    return asdict(ProfileTest(excess=value, delta=delta, **values))


def attack(
    name="dp-sgd-poisson",
    contradicted=False,
    claimed=None,
    claim_excess=None,
    sentence="DP-SGD in a sentence",
    **ledger,
):
    """The attack on one mechanism; `ledger` changes entries of its ledger."""
    profile = {"delta": [0.1], "epsilon": [1.0]}
    facts = dict(
        sentence=sentence,
        relation="add_remove",
        guaranteed=1.5,
        profile=profile,
        lower=bound(),
        profile_test=excess(0.2 if contradicted else -0.2, 0.1),
        contradicted=contradicted,
        claimed=claimed,
        claimed_profile=claimed and profile,
        claim_test=claimed and excess(claim_excess, 0.03),
        claim_contradicted=claimed and claim_excess > 0,
    )
    fields = {"kind": "mechanism", "mechanism": name, "runs": 600, "delta": 0.01}
    spec = MechanismSpec(**COMMON, **fields, level=0.95, verdict_level=0.999)
    return sample_record(spec, facts, name, ledger=LEDGER | ledger)


def trained(audit=None, accuracy=(0.8, 0.9)):
    """A private training; its audit by canaries if `audit` is given."""
    runs = range(len(accuracy))
    by_run = {"accuracy": list(accuracy), "loss": [0.5] * 2, "skipped_records": [1, 2]}
    metrics = {
        **{"n": 1200, "n_test": 297, "noise_multiplier": 5.5, "expected_batch": 600.0},
        **{"steps": 60, "relation": "add_remove", "accuracy": 0.85, "loss": 0.5},
        **{"skipped_records": 3, "audit": audit, "selected": None, "score": None},
        "runs": rows_of({"run": runs}, **by_run),
    }
    settings = {"model": "small-cnn-s", "steps": 60, "runs": len(accuracy), "settings_tried": 10}
    if audit:
        settings |= {"canaries": 300, "level": 0.95}
    return sample_record(NetworkSpec(**NETWORK | settings), metrics, ledger=LEDGER)


def canaries(contradicted=False):
    """The audit of one training run by canaries."""
    counted = {"correct": 80, "p_value": 0.04} if contradicted else {"correct": 60, "p_value": 0.9}
    limits = {"needed": 79, "least_p_value": 1e-4, "level": 0.95}
    test = OneRunTest(canaries=300, guesses=84, **counted, **limits)
    lower = bound(delta=1e-5, method="one run", runs=1)
    audit = {"lower": lower, "profile_test": asdict(test)}
    return trained(audit | {"contradicted": contradicted})


SHOWN = {"audit": lambda: ([attack(), canaries(), trained()], {})}
