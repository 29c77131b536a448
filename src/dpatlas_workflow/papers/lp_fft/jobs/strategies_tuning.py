"""lp_fft: learning rates of every strategy, tried on a fixed part of the records.

A first phase takes the rate that was best for the strategy of that phase alone, and a second phase
tunes its own. So all strategies of two phases, the controls included, try equally many settings.
"""

from collections.abc import Mapping

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.lp_fft.jobs.strategies import (
    StrategyArm,
    StrategyComparison,
    tuned_before,
)
from dpatlas_workflow.papers.lp_fft.records.strategies_tuning import RECORD, StrategiesTuningSpec
from dpatlas_workflow.run.arms import Chosen
from dpatlas_workflow.run.tuning import Tuning


def strategies_tuning(job: Job) -> Outcome:
    """The rates that every arm tried, and those that it chose.

    Raises InputError as the reported runs do.
    """
    fields: StrategiesTuningSpec = job.fields

    def grid_of(arm: StrategyArm, chosen: Mapping[str, Chosen]) -> list[Chosen]:
        first = [lr for name in tuned_before(arm) for lr in chosen[name]["lrs"]]
        return [{"lrs": [*first, lr]} for lr in getattr(fields.lrs, arm.parts[-1])]

    compared = StrategyComparison(job)
    tuning = Tuning(job, compared.arms, grid_of, tuned_before)
    return tuning.outcome(*compared.in_words)


KIND = Kind(
    strategies_tuning,
    record=RECORD,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
)
