"""Attacks on a private mechanism: many runs on two neighbours of the attacker's choice.

The attacker sees everything that the threat model grants; lower bounds on epsilon stand beside what
is guaranteed and claimed.
"""

from dataclasses import asdict
from typing import Any

from dpatlas.checks.audit.jobs.mechanisms import MECHANISMS, Advance
from dpatlas.checks.audit.mechanisms import MECHANISMS as ENTRIES
from dpatlas.core.guard import checked, integer, one_of, real
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise
from dpatlas.core.specs import Spec
from dpatlas.jobs.job import Job, Kind, LegacyFields, legacy
from dpatlas.privacy.audit_statistics import epsilon_lower_bound, profile_excess

# Where the guaranteed epsilon(delta) is compared with what the attack showed.
PROFILE_DELTAS = (1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.2, 0.3)


def mechanism(spec: Spec) -> dict[str, Any]:
    """Attack the mechanism that the spec names."""
    fields = spec.fields
    name, runs, source = fields["mechanism"], fields["runs"], fields["noise_source"]
    with Progress(2 * runs, name) as progress:
        found = audit(
            name,
            runs,
            Noise(spec.digest, source),
            fields["delta"],
            fields["level"],
            fields["verdict_level"],
            progress.advance,
        )
    statement = MECHANISMS[name].ledger(fields["delta"], source)
    return {"metrics": found, "ledger": statement}


@checked(
    name=one_of(*MECHANISMS),
    runs=integer(ge=2),
    delta=real(gt=0, lt=1),
    level=real(gt=0, lt=1),
    verdict_level=real(gt=0, lt=1),
)
def audit(
    name: str,
    runs: int,
    noise: Noise,
    delta: float,
    level: float,
    verdict_level: float,
    advance: Advance,
) -> dict[str, Any]:
    """Attack a mechanism `runs` times on each of two neighbours; judge its guarantee and its claim.

    `lower`: the bound on epsilon at delta, at confidence `level`. `profile_test`: by how much the
    error rates exceed the guaranteed epsilon(delta) where they do so most, at confidence
    `verdict_level`; above 0 the guarantee is contradicted. That level is the higher one, because a
    table of many honest mechanisms should raise no false alarm. `claimed`, `claimed_profile`,
    `claim_test` and `claim_contradicted` are the same for what a paper claims, None for a mechanism
    without a claim. `advance` is called after each run.
    """
    audited = MECHANISMS[name]
    deltas = [delta, *PROFILE_DELTAS]
    guaranteed, *epsilons = audited.profile(deltas)
    claimed, *claimed_epsilons = audited.claimed(deltas) or [None]
    scores = audited.scores(runs, noise, advance)
    lower = epsilon_lower_bound(*scores, delta, level)
    profile = profile_excess(*scores, epsilons, PROFILE_DELTAS, verdict_level)
    claim = None
    if claimed_epsilons:
        claim = profile_excess(*scores, claimed_epsilons, PROFILE_DELTAS, verdict_level)
    return {
        "sentence": ENTRIES[name].sentence,
        "relation": audited.relation,
        "guaranteed": guaranteed,
        "profile": {"delta": list(PROFILE_DELTAS), "epsilon": epsilons},
        "claimed": claimed,
        "claimed_profile": claim and {"delta": list(PROFILE_DELTAS), "epsilon": claimed_epsilons},
        "lower": asdict(lower),
        "profile_test": asdict(profile),
        "contradicted": profile.contradicted,
        "claim_test": claim and asdict(claim),
        "claim_contradicted": claim and claim.contradicted,
    }


def _job(job: Job) -> dict[str, Any]:
    return mechanism(job.spec)


KIND = Kind(legacy(_job), spec=LegacyFields, packages=("torch", "numpy", "scipy", "dp-accounting"))
