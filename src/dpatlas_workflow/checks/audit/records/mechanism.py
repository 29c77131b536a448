"""Records of kind `mechanism`: an attack's lower bound beside what is guaranteed and claimed.

sentence: what the mechanism does. relation: neighbours of its guarantee. guaranteed, claimed:
epsilon at the spec's delta; profile, claimed_profile: of each, the `epsilon` at every `delta`. What
is said of a claim is None for a mechanism without one. lower: bound on epsilon at delta, as of
`dpatlas.accounting.audit_statistics.LowerBound`. profile_test, claim_test: largest excess over the
guaranteed and over the claimed profile, at confidence `verdict_level`, as of `ProfileTest` there;
contradicted, claim_contradicted: whether that excess is above 0.
"""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from dpatlas.base.fields import Model, NoiseSource, Share, setting
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas_workflow.checks.audit.mechanisms import MECHANISMS

if TYPE_CHECKING:
    Mechanism = str
else:
    Mechanism = Literal[tuple(MECHANISMS)]


class AuditLevels(Model):
    """At which delta, and how confidently, an attack speaks."""

    delta: Share = setting("The delta at which lower bounds on epsilon are given.")
    level: Share = setting(
        "Confidence of each lower bound, and of the verdict on the audit by canaries."
    )
    verdict_level: Share = setting(
        "Confidence with which repeated runs count as contradicting a guarantee."
    )


class MechanismSpec(SpecFields, AuditLevels):
    """`runs` runs on each of two neighbouring data sets."""

    key: Literal["audit"]
    kind: Literal["mechanism"]
    seed: int
    noise_source: NoiseSource
    mechanism: Mechanism
    runs: Annotated[int, Field(ge=2)]


RECORD = RecordShape(
    MechanismSpec,
    version=1,
    facts="sentence relation guaranteed profile claimed claimed_profile lower profile_test "
    "contradicted claim_test claim_contradicted",
    tables={},
)
