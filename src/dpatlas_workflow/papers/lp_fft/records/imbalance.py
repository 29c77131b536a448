"""Records of kind `imbalance`: Fig. 10, eigenvalues of the imbalance matrix.

`gap`, by noise multiplier: the Jensen gap of Conjecture E.22 with its standard error, and the mean
of the least eigenvalue, as lists over steps. `drift`, by kind of noise: the change of the mean
eigenvalue with its standard error, as lists over times; paper, exact: the change by the printed and
by the corrected formula.
"""

from typing import Literal

from dpatlas.base.fields import MaxGradNorm, Model, PositiveList, Rate
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas_workflow.papers.lp_fft.records.theory import (
    Every,
    HeadVariance,
    Hidden,
    Inputs,
    Paths,
    Records,
    SolverStep,
    SolverSteps,
    Variance,
)


class ImbalanceGap(Model):
    """Jensen gap of the least eigenvalue in DP-SGD; hidden < inputs < records."""

    hidden: Hidden
    inputs: Inputs
    records: Records
    head_variance: HeadVariance
    sigmas: PositiveList
    max_grad_norm: MaxGradNorm
    lr: Rate
    steps: SolverSteps
    every: Every
    paths: Paths


class ImbalanceDrift(Model):
    """Drift of the mean eigenvalue under noise."""

    hidden: Hidden
    inputs: Inputs
    records: Records
    head_variance: HeadVariance
    sigma2: Variance
    step: SolverStep
    steps: SolverSteps
    every: Every
    paths: Paths


class Imbalance(Model):
    """Eigenvalues of the imbalance matrix of a linear network (Fig. 10)."""

    gap: ImbalanceGap
    drift: ImbalanceDrift


class ImbalanceSpec(SpecFields, Imbalance):
    """The simulations."""

    kind: Literal["imbalance"]


RECORD = RecordShape(
    ImbalanceSpec,
    version=1,
    facts="",
    tables={
        "gap": "sigma paths steps gap error eigenvalue",
        "drift": "noise times change error paper exact",
    },
)
