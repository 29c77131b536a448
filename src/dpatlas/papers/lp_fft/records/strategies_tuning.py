"""lp_fft: specs and records of kind `strategies_tuning`."""

from typing import Literal

from dpatlas.core.facts import TuningFields, tuning_record
from dpatlas.papers.lp_fft.records.private import Part
from dpatlas.papers.lp_fft.records.strategies import Strategies


class StrategiesTuningSpec(Strategies, TuningFields):
    """Settings of a job. lrs: learning rates to try, by the part that a phase trains."""

    kind: Literal["strategies_tuning"]
    lrs: dict[Part, list[float]]


RECORD = tuning_record(StrategiesTuningSpec)
