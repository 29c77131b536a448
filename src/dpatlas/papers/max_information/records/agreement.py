"""max_information: specs and metrics of kind `agreement`, two ways to draw risks."""

from typing import Annotated, Literal

from pydantic import Field

from dpatlas.core.records import Typed
from dpatlas.papers.max_information.records.certified import (
    CertifiedFields,
    CertifiedMetrics,
    Count,
    Method,
    Positive,
    PriorFields,
)

What = Literal["prior", "posterior"]


class Spec(CertifiedFields):
    """One prior and one tau; `repetitions` counts of either network by either method."""

    kind: Literal["agreement"]
    priors: Annotated[list[PriorFields], Field(min_length=1, max_length=1)]
    taus: Annotated[list[Positive], Field(min_length=1, max_length=1)]
    repetitions: Count


class CountedErrors(Typed):
    """Errors among `draws` independent pairs of a training record and weights; risk: their share.

    what: the network whose weights are random. method: how they are drawn.
    """

    what: What
    method: Method
    repetition: int
    draws: int
    errors: int
    risk: float


class Metrics(CertifiedMetrics):
    """diverged: step at which the posterior's training ceased to be finite; it then has no rows."""

    diverged: int | None
    rows: list[CountedErrors]
