"""Private training of a classifier, or the audit of one run by canaries: spec and metrics."""

from typing import Annotated

from pydantic import Field

from dpatlas.checks.audit.records.bounds import Bound, OneRun
from dpatlas.checks.audit.records.classifier import Classifier
from dpatlas.core import records
from dpatlas.core.records import Typed


class Spec(Classifier):
    """`runs` trainings. canaries: number of canaries in an audited run; 0 for no audit.

    settings_tried: number of settings compared on validation records, None if unknown. level:
    confidence of the audit's bound and verdict, set where there are canaries.
    """

    max_grad_norm: float
    lr: float
    ema_decay: float | None
    runs: Annotated[int, Field(ge=1)]
    canaries: Annotated[int, Field(ge=0)]
    settings_tried: int | None
    level: float | None = None


class Look(Typed):
    """Accuracy and mean cross-entropy on held-out records at a step; loss is None if not finite."""

    step: int
    accuracy: float
    loss: float | None


class Audit(Typed):
    """What one run's canaries show. auc: of their scores; None if all are in, or all out.

    lower: bound on epsilon at the spec's delta. profile_test: of the guaranteed privacy profile as
    a whole; contradicted: whether it is rejected.
    """

    auc: float | None
    lower: Bound
    profile_test: OneRun
    contradicted: bool


class Metrics(records.Metrics):
    """Results of all runs. accuracy: (runs,), of the last iterates on held-out records.

    curves: accuracy along each run. ema_accuracy: (runs,), of averaged weights; empty without an
    average. skipped_records: (runs,), number of gradients that were not finite. selection: how the
    settings were chosen, in words. audit: None without canaries.
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
