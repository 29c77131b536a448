"""Records of kind `linearized`: the linearised network of Sec. 6 at a fixed KL budget.

`depths`, by run and depth. B: of Eq. 7; B_run: mean squared gradient norm over records at the
start. R: ||W - W_0||^2 of Lemma 6.3's near-optimal W on the training records of the run, R_sphere:
on `sphere_records` inputs of norm sqrt(d); BR_over_n, BR_over_n_sphere: B R / n on as many. T:
training time of Cor. 6.4 for the run's R. excess_risk: of the averaged iterate; initial_risk: at
W_0 (logistic loss). kl_fixed: largest KL of any record after the spec's `time` with its `sigma`.

`shares`, by run, depth and share of the time T: kl_max, KL in nats under the exact convention of
the record for which it is largest; kl_watched, of the watched one.

`widths`, by run and width, of networks of which R alone is measured: as in `depths`.
"""

from typing import Literal

from dpatlas.base.fields import Model, setting
from dpatlas.base.records import RecordShape, RunsFields
from dpatlas_workflow.papers.kl_privacy.records import (
    Depth,
    Depths,
    Init,
    KlSpec,
    Position,
    Steps,
    Width,
    Widths,
)


class Linearized(Model):
    """The linearised network of Sec. 6, trained at a fixed KL budget and at a fixed noise."""

    depths: Depths
    width: Width
    n_train: int = setting(
        "Training records used; the work grows with their cube.", ge=2, le=20_000
    )
    epsilon: float = setting("KL budget epsilon of Cor. 6.4, in nats.", gt=0, le=1e6)
    min_steps: Steps
    time: float = setting("Training time at the fixed noise, steps times step size.", gt=0, le=1e6)
    sigma: float = setting("The fixed noise sigma.", gt=0)
    widths: Widths
    width_depth: Depth


class LinearizedSpec(KlSpec, RunsFields, Linearized):
    """One initialisation over several depths; `watched`: a record that takes part in every run."""

    kind: Literal["linearized"]
    init: Init
    watched: Position


RECORD = RecordShape(
    LinearizedSpec,
    version=3,
    facts="n_train n_add sphere_records",
    tables={
        "depths": "run depth B B_run R BR_over_n R_sphere BR_over_n_sphere T "
        "excess_risk initial_risk kl_fixed",
        "shares": "run depth share kl_max kl_watched",
        "widths": "run width B R BR_over_n R_sphere BR_over_n_sphere",
    },
)
