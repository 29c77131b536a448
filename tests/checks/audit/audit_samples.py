"""Small records of attacks, canaries and trainings, as the table `audit` reads them."""

from figure_samples import sample_record
from small_jobs import TRAINING

from dpatlas.checks.audit.records import mechanism, training
from dpatlas.checks.audit.records.bounds import Bound, Excess, OneRun, Rates
from dpatlas.checks.audit.settings import DEFAULTS

LEDGER = {
    "mechanism": "DP-SGD in words",
    "sampler": {"name": "poisson", "n": 32, "expected_batch": 8.0, "sample_rate": 0.25},
    "epsilon": 3.0,
    "delta": 1e-5,
    "claimed": None,
}
COMMON = {"key": "audit", "seed": 0, "noise_source": "keyed"}
RATES = Rates(
    runs=1200,
    threshold=0.0,
    above=True,
    false_positives=1,
    tested_without=450,
    false_negatives=2,
    tested_with=450,
    fpr_limit=0.02,
    fnr_limit=0.03,
)


def bound(**changes):
    values = {"epsilon": 0.8, "delta": 0.01, "level": 0.95, "runs": 1200, "ceiling": 5.0}
    return Bound(**{**values, "method": "repeated runs", "evidence": RATES, **changes})


def excess(value, delta):
    values = {"epsilon": 1.0, "level": 0.999, "runs": 1200, "ceiling": 4.0, "evidence": RATES}
    return Excess(excess=value, delta=delta, **values)


def attack(
    name="dp-sgd-poisson",
    contradicted=False,
    claimed=None,
    claim_excess=None,
    sentence="DP-SGD in a sentence",
    **ledger,
):
    """The attack on one mechanism; `ledger` changes entries of its ledger."""
    profile = mechanism.Profile(delta=[0.1], epsilon=[1.0])
    metrics = mechanism.Metrics(
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
    spec = mechanism.Spec(**COMMON, **fields, level=0.95, verdict_level=0.999)
    return sample_record(spec, metrics, name, ledger=LEDGER | ledger)


def trained(audit=None, accuracy=(0.8, 0.9)):
    """A private training; its audit by canaries if `audit` is given."""
    metrics = training.Metrics(
        accuracy=list(accuracy),
        curves=[],
        ema_accuracy=[],
        selection=None,
        noise_multiplier=5.5,
        expected_batch=600.0,
        n_train=1200,
        n_test=297,
        skipped_records=[1, 2],
        audit=audit,
    )
    settings = {"model": "small-cnn-s", "steps": 60, "runs": len(accuracy), "settings_tried": 10}
    settings |= {"kind": "training", "canaries": 300 if audit else 0}
    spec = training.Spec(**{**TRAINING, **DEFAULTS, **COMMON, **settings})
    return sample_record(spec, metrics, ledger=LEDGER)


def canaries(contradicted=False):
    """The audit of one training run by canaries."""
    test = OneRun(
        canaries=300,
        guesses=84,
        correct=80 if contradicted else 60,
        needed=79,
        p_value=0.04 if contradicted else 0.9,
        least_p_value=1e-4,
        level=0.95,
    )
    lower = bound(delta=1e-5, method="one run", runs=1)
    return trained(
        training.Audit(auc=0.6, lower=lower, profile_test=test, contradicted=contradicted)
    )
