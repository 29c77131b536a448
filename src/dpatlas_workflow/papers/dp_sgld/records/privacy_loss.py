"""Records of kind `privacy_loss`: epsilon against steps by every accounting.

lipschitz, beta: Lipschitz constant and smoothness of a record's loss. small: n, batch, radius of
the interval and claimed epsilon of the one-dimensional example.

`curves`, by curve and step: epsilon at the spec's delta, None where it is infinite. calibration:
the comparison whose K calibrates the noise sigma2, or `one dimension` for that example.

`published`, by published DP-SGLD row: its ordinary accounting, and the DP-SGD row beside it.
noise_multiplier: of the first step, which is the smallest. add_remove: epsilon of Poisson batches.
replace_one: epsilon of batches without replacement. dp_sgd_pld, dp_sgd_rdp: epsilon of DP-SGD's
Poisson batches for add_remove, by two accountants.
"""

from typing import Literal

from pydantic import Field

from dpatlas.base.fields import Batch, Delta, Epsilon, Model, setting
from dpatlas.base.records import RecordShape
from dpatlas_workflow.papers.dp_sgld.records import (
    FeatureNorm,
    Regulariser,
    Schedules,
    SgldSpec,
    batch_of_at_most,
)


class PrivacyLoss(Model):
    """Epsilon against steps by every accounting; nothing is trained."""

    n: int = setting("Number of records.", ge=2, le=100_000_000)
    classes: int = setting("Number of classes; it sets the radius.", ge=2, le=100_000)
    feature_norm: FeatureNorm = setting("Public bound R on the norm of a record.")
    batch: Batch
    epochs: int = setting("Length of the run.", ge=1, le=10_000)
    lam: Regulariser = Field(alias="lambda")
    epsilon: Epsilon
    schedules: Schedules

    _batch = batch_of_at_most("n", lambda model: model.n)


class PrivacyLossSpec(SgldSpec, PrivacyLoss):
    """A run that is accounted for; epsilon: what Thm 3.2 claims at the last step."""

    kind: Literal["privacy_loss"]
    delta: Delta


RECORD = RecordShape(
    PrivacyLossSpec,
    version=2,
    facts="lipschitz beta steps_per_epoch small",
    tables={
        "curves": "calibration schedule curve sigma2 step epsilon",
        "published": "table dataset backbone steps noise_multiplier add_remove replace_one "
        "dp_sgd_noise_multiplier dp_sgd_pld dp_sgd_rdp",
    },
)
