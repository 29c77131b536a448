"""dp_sgld, records of kind finetune_tuning: the learning rates that every arm tried."""

from dpatlas.core.facts import TuningFields, TuningMetrics
from dpatlas.papers.dp_sgld.records import Positives
from dpatlas.papers.dp_sgld.records.finetune import Finetune


class Spec(Finetune, TuningFields):
    """Settings of a job. lrs: rates that every arm tries."""

    lrs: Positives


class Metrics(TuningMetrics):
    """One row for every arm."""
