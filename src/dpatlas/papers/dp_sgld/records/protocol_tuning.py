"""dp_sgld, records of kind protocol_tuning: the clip bounds that every arm of DP-SGD tried."""

from dpatlas.core.facts import TuningFields, TuningMetrics
from dpatlas.papers.dp_sgld.records import Positives
from dpatlas.papers.dp_sgld.records.protocol import Protocol


class Spec(Protocol, TuningFields):
    """Settings of a job. clips: clip bounds of DP-SGD; the other methods have nothing to try."""

    clips: Positives


class Metrics(TuningMetrics):
    """One row for every arm."""
