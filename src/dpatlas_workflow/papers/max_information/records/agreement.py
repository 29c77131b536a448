"""Records of kind `agreement`, two ways to draw risks: counts of either network by either method.

what: the network whose weights are random. method: how they are drawn. errors: among `draws`
independent pairs of a training record and weights; risk: their share. The fact `diverged`: step at
which the posterior's training ceased to be finite; it then has no rows.
"""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.fields import Count, Model, Positive, setting
from dpatlas.base.records import RecordShape
from dpatlas_workflow.papers.max_information.records.certified import (
    FACTS,
    CertifiedFields,
    PriorFields,
)

What = Literal["prior", "posterior"]


class Agreement(Model):
    """Comparison of two ways to estimate a risk: local reparametrisation and sampled weights."""

    draws: int = setting("Pairs of a record and weights in every count.", ge=1, le=10_000_000)
    repetitions: int = setting("Number of counts by either method.", ge=1, le=1000)


class AgreementSpec(CertifiedFields, Agreement):
    """One prior and one tau."""

    kind: Literal["agreement"]
    priors: Annotated[list[PriorFields], Field(min_length=1, max_length=1)]
    taus: Annotated[list[Positive], Field(min_length=1, max_length=1)]
    draws: Count


RECORD = RecordShape(
    AgreementSpec,
    version=2,
    facts=f"{FACTS} diverged",
    tables={"rows": "what method repetition draws errors risk"},
)
