"""Records of kind `network`: networks trained by `dpatlas.train`, or one with canaries.

n: records, canaries counted, that batches are drawn from; n_test: test records. relation: of the
guarantee. noise_multiplier, expected_batch: of every step. accuracy, loss: means over the runs, on
test records. skipped_records: gradients that were not finite. audit: what canaries show, None
without any. lower: bound on epsilon at the spec's delta, as of
`dpatlas.accounting.audit_statistics.LowerBound`; profile_test: of the guaranteed privacy profile as
a whole, as of `dpatlas.accounting.one_run.OneRunTest`; contradicted: whether it is rejected.
selected, score: None, as nothing is selected here.
"""

from typing import Literal

from dpatlas.core.facts import DataFields
from dpatlas.core.fields import (
    Batch,
    Count,
    Delta,
    Epsilon,
    MaxGradNorm,
    Model,
    Momentum,
    NoiseSource,
    Optimizer,
    Rate,
    SettingsTried,
    Updates,
)
from dpatlas.core.records import RecordShape, SpecFields


class Training(Model):
    """Keys of `dpatlas.train` that the config sets."""

    model: str
    epsilon: Epsilon
    delta: Delta
    batch: Batch
    steps: Updates
    max_grad_norm: MaxGradNorm
    optimizer: Optimizer
    lr: Rate
    momentum: Momentum
    settings_tried: SettingsTried


class NetworkSpec(SpecFields, Training):
    """`runs` trainings on a data set; canaries: their number, with `level`, or None."""

    key: Literal["audit"]
    kind: Literal["network"]
    seed: int
    noise_source: NoiseSource
    data: DataFields
    runs: Count = 1
    canaries: Count | None = None
    level: float | None = None


RECORD = RecordShape(
    NetworkSpec,
    version=1,
    facts="n n_test relation noise_multiplier expected_batch steps accuracy loss skipped_records "
    "audit selected score",
    tables={"runs": "run accuracy loss skipped_records"},
)
