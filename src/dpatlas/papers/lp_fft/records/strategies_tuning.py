"""lp_fft: specs and records of kind `strategies_tuning`."""

from dpatlas.core.facts import TuningFields, TuningMetrics
from dpatlas.papers.lp_fft.records.private import Part
from dpatlas.papers.lp_fft.records.strategies import Strategies


class Spec(Strategies, TuningFields):
    """Settings of a job. lrs: learning rates to try, by the part that a phase trains."""

    lrs: dict[Part, list[float]]


class Metrics(TuningMetrics):
    """One row for every strategy and share."""
