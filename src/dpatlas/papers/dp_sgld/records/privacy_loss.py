"""dp_sgld, records of kind privacy_loss: epsilon against steps by every accounting."""

from typing import Annotated

from pydantic import Field

from dpatlas.core import records
from dpatlas.core.records import Typed
from dpatlas.papers.dp_sgld.records import Count, Delta, Positive, RunSpec, Schedule


class Spec(RunSpec):
    """Settings of a run that is accounted for and never trained.

    n, classes: numbers of records and classes. feature_norm: public bound on the norm of a record.
    lam: weight of the regulariser. epsilon: what Thm 3.2 claims at the last step.
    """

    n: Annotated[int, Field(ge=2)]
    classes: Annotated[int, Field(ge=2)]
    feature_norm: Positive
    batch: Count
    epochs: Count
    lam: Positive = Field(alias="lambda")
    epsilon: Positive
    delta: Delta
    schedules: Annotated[list[Schedule], Field(min_length=1)]


class SmallLaw(Typed):
    """The one-dimensional example: n records, radius of the interval, claimed epsilon."""

    n: int
    batch: int
    radius: float
    epsilon: float


class Curve(Typed):
    """Epsilon at the spec's delta after `steps` steps, by one accounting.

    calibration: the comparison whose K calibrates the noise `sigma2`, or the one-dimensional
    example. epsilon: shape (steps,), None where it is infinite.
    """

    calibration: str
    schedule: Schedule
    curve: str
    sigma2: float
    steps: list[int]
    epsilon: list[float | None]


class PublishedDpSgd(Typed):
    """A published DP-SGD row: epsilon of Poisson batches for add_remove, by two accountants."""

    noise_multiplier: float
    pld: float
    rdp: float


class PublishedAccounting(Typed):
    """Ordinary accounting of a published DP-SGLD row, and the DP-SGD row beside it.

    noise_multiplier: of the first step, which is the smallest. add_remove: epsilon of Poisson
    batches. replace_one: epsilon of batches without replacement.
    """

    table: int
    dataset: str
    backbone: str
    steps: int
    noise_multiplier: float
    add_remove: float
    replace_one: float
    dp_sgd: PublishedDpSgd


class Metrics(records.Metrics):
    """Curves of epsilon, and accountings of the published rows.

    lipschitz, beta: Lipschitz constant and smoothness of a record's loss. small: the example of
    the curves in one dimension.
    """

    lipschitz: float
    beta: float
    steps_per_epoch: int
    small: SmallLaw
    curves: list[Curve]
    published: list[PublishedAccounting]
