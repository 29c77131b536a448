"""The attack on one mechanism: spec and metrics."""

from typing import Annotated

from pydantic import AfterValidator, Field

from dpatlas.checks.audit.mechanisms import MECHANISMS
from dpatlas.checks.audit.records.bounds import Bound, Excess
from dpatlas.core import records
from dpatlas.core.guard import one_of
from dpatlas.core.records import SpecFields, Typed

Share = Annotated[float, Field(gt=0, lt=1)]


def _known(name: str) -> str:
    one_of(*MECHANISMS).check("mechanism", name)
    return name


class Spec(SpecFields):
    """`runs` runs on each of two neighbouring data sets; bounds at `delta` and confidence `level`.

    verdict_level: confidence with which a guarantee counts as contradicted.
    """

    seed: int
    noise_source: str
    mechanism: Annotated[str, AfterValidator(_known)]
    runs: Annotated[int, Field(ge=2)]
    delta: Share
    level: Share
    verdict_level: Share


class Profile(Typed):
    """Points of a privacy profile: epsilon at each delta."""

    delta: list[float]
    epsilon: list[float]


class Metrics(records.Metrics):
    """The attack's lower bound beside the guaranteed epsilon and the one that a paper claims.

    guaranteed, claimed: epsilon at the spec's delta; every field about a claim is None for a
    mechanism without one. lower: bound on epsilon at delta. profile_test, claim_test: largest
    excess over the guaranteed and over the claimed profile, at confidence `verdict_level`;
    contradicted, claim_contradicted: whether that excess is above 0.
    """

    sentence: str
    relation: str
    guaranteed: float
    profile: Profile
    claimed: float | None
    claimed_profile: Profile | None
    lower: Bound
    profile_test: Excess
    contradicted: bool
    claim_test: Excess | None
    claim_contradicted: bool | None
