"""dp_sgld, records of kind long_training_tuning: the settings that every arm tried."""

from dpatlas.core.facts import TuningFields, TuningMetrics
from dpatlas.papers.dp_sgld.records import Positives
from dpatlas.papers.dp_sgld.records.long_training import LongTraining


class Spec(LongTraining, TuningFields):
    """Settings of a job. lambdas: tried by Langevin SGD. lrs: tried by DP-SGD."""

    lambdas: Positives
    lrs: Positives


class Metrics(TuningMetrics):
    """One row for every number of steps and method."""
