"""lp_fft: specs and records of kind `imbalance`."""

from dpatlas.core import records
from dpatlas.core.records import SpecFields, Typed
from dpatlas.papers.lp_fft.records.theory import Count, LayerNoise, Positive, Several


class Paths(Typed):
    """Simulated paths of linear networks with random heads, measured every `every` steps."""

    hidden: Count
    inputs: Count
    records: Count
    head_variance: Positive
    steps: Count
    every: Count
    paths: Several


class Gap(Paths):
    """DP-SGD with full batches; sigmas: noise multipliers; lr: applied to the mean gradient."""

    sigmas: list[Positive]
    max_grad_norm: Positive
    lr: Positive


class Drift(Paths):
    """Euler steps of the Langevin diffusion."""

    sigma2: float
    step: Positive


class Spec(SpecFields):
    """Fig. 10: the gap of Conjecture E.22, and the drift of the mean eigenvalue."""

    gap: Gap
    drift: Drift


class GapRow(Typed):
    """Jensen gap with its standard error, and mean of the least eigenvalue, (steps,)."""

    sigma: float
    paths: int
    steps: list[int]
    gap: list[float]
    error: list[float]
    eigenvalue: list[float]


class DriftRow(Typed):
    """Change of the mean eigenvalue with its standard error, (times,).

    paper, exact: the change by the printed and by the corrected formula.
    """

    noise: LayerNoise
    times: list[float]
    change: list[float]
    error: list[float]
    paper: list[float]
    exact: list[float]


class Metrics(records.Metrics):
    """gap: rows by noise multiplier. drift: rows by kind of noise."""

    gap: list[GapRow]
    drift: list[DriftRow]
