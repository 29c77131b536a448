"""The records of each kind, as figures and claims read them."""

from dpatlas.papers.kl_privacy.records import constants, linearized, training
from dpatlas.records import Record

TrainingRecord = Record[training.Spec, training.Metrics]
LinearizedRecord = Record[linearized.Spec, linearized.Metrics]
ConstantsRecord = Record[constants.Spec, constants.Metrics]
