"""The attack on a private mechanism: many runs on two neighbours of the attacker's choice.

The attacker sees everything that the threat model grants. The record has the lower bound on epsilon
beside the guaranteed epsilon and the one that a paper claims.
"""

from dataclasses import asdict
from typing import Any

from dpatlas.accounting.audit_statistics import epsilon_lower_bound, profile_excess
from dpatlas.base.progress import Progress
from dpatlas.base.seeds import Noise
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.checks.audit.jobs.mechanisms import MECHANISMS, Advance
from dpatlas_workflow.checks.audit.mechanisms import MECHANISMS as SENTENCES
from dpatlas_workflow.checks.audit.records.mechanism import RECORD, MechanismSpec

# Points of the privacy profile epsilon(delta) that the attack's error rates are compared with.
PROFILE_DELTAS = (1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.2, 0.3)


def run(job: Job) -> Outcome:
    """Attack the mechanism that the spec names."""
    fields: MechanismSpec = job.fields
    with Progress(2 * fields.runs, fields.mechanism) as progress:
        facts = audit(fields, Noise(job.spec.digest, fields.noise_source), progress.advance)
    mechanism = MECHANISMS[fields.mechanism]
    return Outcome(facts, mechanism.ledger(fields.delta, fields.noise_source))


def audit(fields: MechanismSpec, noise: Noise, advance: Advance) -> dict[str, Any]:
    """Attack a mechanism on each of two neighbours; the facts of the record.

    The guarantee is contradicted where the error rates exceed the guaranteed epsilon(delta) at
    confidence `verdict_level`. That confidence is higher than `level`, so that a table of many
    honest mechanisms raises no false alarm. `advance` is called after each run.
    """
    mechanism, delta, level = MECHANISMS[fields.mechanism], fields.delta, fields.verdict_level
    deltas = [delta, *PROFILE_DELTAS]
    guaranteed, *epsilons = mechanism.profile(deltas)
    claims = mechanism.claimed(deltas)
    scores = mechanism.scores(fields.runs, noise, advance)
    lower = epsilon_lower_bound(*scores, delta, fields.level)
    test = profile_excess(*scores, epsilons, PROFILE_DELTAS, level)
    claimed, claimed_profile, claim = None, None, None
    if claims is not None:
        claimed, *claimed_epsilons = claims
        claimed_profile = {"delta": list(PROFILE_DELTAS), "epsilon": claimed_epsilons}
        claim = profile_excess(*scores, claimed_epsilons, PROFILE_DELTAS, level)
    return {
        "sentence": SENTENCES[fields.mechanism],
        "relation": mechanism.relation,
        "guaranteed": guaranteed,
        "profile": {"delta": list(PROFILE_DELTAS), "epsilon": epsilons},
        "claimed": claimed,
        "claimed_profile": claimed_profile,
        "lower": asdict(lower),
        "profile_test": asdict(test),
        "contradicted": test.contradicted,
        "claim_test": claim and asdict(claim),
        "claim_contradicted": claim and claim.contradicted,
    }


KIND = Kind(run, record=RECORD, packages=("torch", "numpy", "scipy", "dp-accounting"))
