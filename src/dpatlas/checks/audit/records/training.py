"""Private training of a classifier, or the audit of one run by canaries: spec and metrics."""

from typing import Annotated

from pydantic import Field

from dpatlas.checks.audit.records.bounds import Bound
from dpatlas.checks.audit.records.classifier import Classifier
from dpatlas.core import records
from dpatlas.core.records import Typed


class Spec(Classifier):
    """`runs` trainings. canaries: mislabelled records in the one run that is audited; 0 for none.

    settings_tried: how many were compared on validation records, None if nobody says. level,
    verdict_level: confidence of the audit's bounds, set where there are canaries.
    """

    max_grad_norm: float
    lr: float
    ema_decay: float | None
    runs: Annotated[int, Field(ge=1)]
    canaries: Annotated[int, Field(ge=0)]
    settings_tried: int | None
    level: float | None = None
    verdict_level: float | None = None


class Look(Typed):
    """Share of right answers on held-out records, and mean cross-entropy, None if no number."""

    step: int
    accuracy: float
    loss: float | None


class Audit(Typed):
    """What canaries prove: auc of their scores (None if all fell one way), bounds on epsilon.

    excess: of the bound at confidence `verdict_level` over the guaranteed epsilon, None where
    nothing is guaranteed.
    """

    canaries: int
    auc: float | None
    lower: Bound
    verdict_bound: Bound
    excess: float | None
    contradicted: bool


class Metrics(records.Metrics):
    """Accuracy on held-out records of every run's last iterate, (runs,), and of averaged weights.

    curves: looks at each run. ema_accuracy: (runs,), empty without an average. skipped_records:
    gradients of each run that were no number. selection: in words. audit: None without canaries.
    """

    n_train: int
    n_test: int
    noise_multiplier: float
    expected_batch: float
    accuracy: list[float]
    curves: list[list[Look]]
    ema_accuracy: list[float]
    skipped_records: list[int]
    selection: str | None
    audit: Audit | None
