"""Records of kind `training`: private training of a classifier, or one run's audit by canaries.

n_train, n_test: numbers of records. noise_multiplier, expected_batch: of every step. selection: how
the settings were chosen, in words, or None. audit: what one run's canaries show, None without any;
auc: of their scores, None if all are in, or all out; lower: bound on epsilon at the spec's delta,
as of `dpatlas.accounting.audit_statistics.LowerBound`; profile_test: of the guaranteed privacy
profile as a whole, as of `dpatlas.accounting.one_run.OneRunTest`; contradicted: whether it is
rejected.

`runs`, by run. accuracy: of the last iterate on held-out records; ema_accuracy: of averaged
weights, None without an average. skipped_records: number of gradients that were not finite.

`curves`, by run and step: accuracy and mean cross-entropy on held-out records; the loss is None if
it is not finite.
"""

from typing import Annotated

from pydantic import Field

from dpatlas.checks.audit.records.classifier import Classifier
from dpatlas.core.fields import Count
from dpatlas.core.records import RecordShape


class TrainingSpec(Classifier):
    """`runs` trainings. canaries: number of canaries in an audited run; 0 for no audit.

    settings_tried: number of settings compared on validation records, None if unknown. level:
    confidence of the audit's bound and verdict, set where there are canaries.
    """

    max_grad_norm: float
    lr: float
    ema_decay: float | None
    runs: Count
    canaries: Annotated[int, Field(ge=0)]
    settings_tried: int | None
    level: float | None = None


RECORD = RecordShape(
    TrainingSpec,
    version=2,
    facts="n_train n_test noise_multiplier expected_batch selection audit",
    tables={
        "runs": "run accuracy ema_accuracy skipped_records",
        "curves": "run step accuracy loss",
    },
)
