"""lp_fft: learning rates of every strategy, tried on a fixed part of the records.

A first phase takes the rate that was best for the strategy of that phase alone, and a second phase
tunes its own. So all strategies of two phases, the controls included, try equally many settings.
"""

from collections.abc import Mapping

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.lp_fft.jobs.strategies import StrategyTrainings
from dpatlas_workflow.papers.lp_fft.records.strategies_tuning import RECORD, StrategiesTuningSpec
from dpatlas_workflow.papers.lp_fft.strategies import ALONE
from dpatlas_workflow.run.arms import Chosen
from dpatlas_workflow.run.tuning import tune


def strategies_tuning(job: Job) -> Outcome:
    """The rates that every arm tried, and those that it chose.

    Raises InputError as the reported runs do.
    """
    fields: StrategiesTuningSpec = job.fields
    trainings = StrategyTrainings(job)
    parts_of = {name: arm.parts for name, arm in trainings.compared.items()}

    def after(name: str) -> list[str]:
        first, *second = parts_of[name]
        return [ALONE[first]] if second else []

    def grid_of(name: str, chosen: Mapping[str, Chosen]) -> list[Chosen]:
        first = [lr for before in after(name) for lr in chosen[before]["lrs"]]
        return [{"lrs": [*first, lr]} for lr in getattr(fields.lrs, parts_of[name][-1])]

    return tune(job, trainings.arms, grid_of, after)


KIND = Kind(strategies_tuning, record=RECORD, packages=("torch", "numpy", "scipy", "dp-accounting"))
