"""Records of kind `utility`: measured excess risk beside the utility bounds.

parameters: their number d. lipschitz, beta: Lipschitz constant and smoothness of a record's loss.
radius: of the ball that iterates are projected onto. minimiser_norm: ||theta*||.
excess_risk_at_zero: of zero weights. batch_noise: xi2 = E ||grad L_B(theta*)||^2.

By schedule and epsilon. `noise`: its variance sigma2, and distance2, the bound on
E ||theta_0 - theta*||^2. `bounds`: a lemma's at every shown step, a theorem's after its own number
of steps; corrected, `exact`, and as printed, `paper`. `risks`, by run and shown step: the measured
excess_risk.
"""

from typing import Literal

from pydantic import Field

from dpatlas.base.fields import Batch, Delta, Model, PositiveList, Updates, setting
from dpatlas.base.records import RecordShape, RunsFields
from dpatlas_workflow.papers.dp_sgld.records import (
    Regulariser,
    Schedules,
    SgldSpec,
    batch_of_at_most,
)


class Utility(Model):
    """The utility bounds beside measured excess risk on a problem with known optimum."""

    n: int = setting("Number of generated records.", ge=2, le=10_000_000)
    inputs: int = setting("Dimension of a record.", ge=1, le=10_000)
    batch: Batch
    lam: Regulariser = Field(alias="lambda")
    epsilons: PositiveList
    steps: Updates
    schedules: Schedules

    _batch = batch_of_at_most("n", lambda model: model.n)


class UtilitySpec(SgldSpec, RunsFields, Utility):
    """Runs of Langevin SGD on generated records; the noise is Thm 4.2's."""

    kind: Literal["utility"]
    delta: Delta


RECORD = RecordShape(
    UtilitySpec,
    version=2,
    facts="classes parameters lipschitz beta radius minimiser_norm gradient_norm_at_minimiser "
    "excess_risk_at_zero batch_noise",
    tables={
        "noise": "schedule epsilon sigma2 distance2",
        "bounds": "schedule epsilon bound step exact paper",
        "risks": "run schedule epsilon step excess_risk",
    },
)
