"""Records of kind `network`: networks trained by `dpatlas.train`, or one with canaries."""

from typing import Literal

from dpatlas.base.facts import DataFields, network_record
from dpatlas.base.fields import (
    Batch,
    Count,
    Delta,
    Epsilon,
    MaxGradNorm,
    Model,
    Momentum,
    NoiseSource,
    Optimizer,
    Rate,
    SettingsTried,
    Updates,
)
from dpatlas.base.records import SpecFields


class NetworkTraining(Model):
    """Keys of `dpatlas.train` that the config sets."""

    model: str
    epsilon: Epsilon
    delta: Delta
    batch: Batch
    steps: Updates
    max_grad_norm: MaxGradNorm
    optimizer: Optimizer
    lr: Rate
    momentum: Momentum
    settings_tried: SettingsTried


class NetworkSpec(SpecFields, NetworkTraining):
    """`runs` trainings on a data set; canaries: their number, with `level`, or None."""

    key: Literal["audit"]
    kind: Literal["network"]
    seed: int
    noise_source: NoiseSource
    data: DataFields
    runs: Count = 1
    canaries: Count | None = None
    level: float | None = None


RECORD = network_record(NetworkSpec)
