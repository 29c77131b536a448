"""dp_sgld: the shared part of specs and rows of the kinds that train on private data."""

from typing import Literal

from pydantic import Field

from dpatlas.core.facts import DataFields, ReportedRow
from dpatlas.papers.dp_sgld.records import Delta, Positive, RunSpec


class TrainingSpec(RunSpec):
    """Settings of a job that trains on private data.

    backbone: id of the run that trained it; None with raw features. max_grad_norm: clip bound of
    DP-SGD. accountant: of DP-SGD and of ordinary accounting.
    """

    data: DataFields
    backbone: str | None
    delta: Delta
    max_grad_norm: Positive
    accountant: Literal["auto", "pld", "rdp"] = "auto"


class ArmRow(ReportedRow):
    """One arm, what is claimed of one run and what holds, at the spec's delta.

    epsilon: the target of its calibration; None without privacy. lr: the first step size.
    claimed_epsilon: by the paper. ordinary_epsilon: by composition, for the release of every
    iterate. hidden_state_epsilon: for the last iterate. guaranteed_epsilon: the smallest that
    holds. Each is None where nothing is claimed or no bound applies.
    """

    epsilon: float | None
    lr: float
    steps: int
    claimed_epsilon: float | None
    ordinary_epsilon: float | None
    hidden_state_epsilon: float | None
    guaranteed_epsilon: float | None


class SgdRow(ArmRow):
    """An arm of DP-SGD, or of SGD, which neither clips nor adds noise: None for both.

    epochs: expected passes over the training records.
    """

    epochs: float
    max_grad_norm: float | None
    noise_multiplier: float | None


class LangevinRow(ArmRow):
    """An arm of Langevin SGD.

    lam: weight of the regulariser. beta, lipschitz: smoothness and Lipschitz constant of a
    record's loss. radius: of the ball that iterates are projected onto. sigma: the update adds
    sqrt(2 lr) sigma N(0, 1). epochs: passes over the training records.
    """

    lam: float = Field(alias="lambda")
    beta: float
    lipschitz: float
    radius: float
    sigma: float
    epochs: int
