"""lp_fft: specs and records of kind `imbalance`."""

from dpatlas.core import records
from dpatlas.core.records import SpecFields, Typed
from dpatlas.papers.lp_fft.records.theory import Count, LayerNoise, Positive, Several


class Paths(Typed):
    """Paths of linear nets with random heads, looked at after every `every` of their steps."""

    hidden: Count
    inputs: Count
    records: Count
    head_variance: Positive
    steps: Count
    every: Count
    paths: Several


class Gap(Paths):
    """DP-SGD with full batches; sigmas: noise multipliers. lr: on the mean gradient."""

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
    """Jensen's gap with its standard error, and the mean of the least eigenvalue, (steps,)."""

    sigma: float
    paths: int
    steps: list[int]
    gap: list[float]
    error: list[float]
    eigenvalue: list[float]


class DriftRow(Typed):
    """Change of the mean eigenvalue with its standard error, beside both lines, (times,).

    paper, exact: the drift as printed and corrected.
    """

    noise: LayerNoise
    times: list[float]
    change: list[float]
    error: list[float]
    paper: list[float]
    exact: list[float]


class Metrics(records.Metrics):
    """Rows by noise multiplier, and by kind of noise."""

    gap: list[GapRow]
    drift: list[DriftRow]
