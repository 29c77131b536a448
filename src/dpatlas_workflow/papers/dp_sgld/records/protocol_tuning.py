"""Records of kind `protocol_tuning`: the clip bounds that every arm of DP-SGD tried."""

from typing import Literal

from dpatlas.base.facts import TuningFields, tuning_record
from dpatlas.base.fields import Model, PositiveList, setting
from dpatlas_workflow.papers.dp_sgld.records.protocol import ProtocolFields


class Clips(Model):
    """What is tried."""

    clips: PositiveList = setting("Clip bounds that DP-SGD tries.")


class ProtocolTuningSpec(ProtocolFields, TuningFields, Clips):
    """The tuning; methods other than DP-SGD have nothing to try."""

    kind: Literal["protocol_tuning"]


RECORD = tuning_record(ProtocolTuningSpec)
