"""Records of kind `strategies_tuning`: the learning rates that every arm tried."""

from typing import Literal

from dpatlas.base.facts import TuningFields, tuning_record
from dpatlas.base.fields import Model, PositiveList
from dpatlas_workflow.papers.lp_fft.records.strategies import Strategies


class StrategyRates(Model):
    """Learning rates to try on the fixed part of the records, by what a phase trains."""

    head: PositiveList
    full: PositiveList
    lora: PositiveList


class StrategiesTuningSpec(Strategies, TuningFields):
    """The tuning."""

    kind: Literal["strategies_tuning"]
    lrs: StrategyRates


RECORD = tuning_record(StrategiesTuningSpec)
