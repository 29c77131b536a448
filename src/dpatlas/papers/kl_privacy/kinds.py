"""The types of the paper's records, one for each kind of job, for figures and claims."""

from dpatlas.papers.kl_privacy.records import constants, linearized, training
from dpatlas.records import Record

TrainingRecord = Record[training.Spec, training.Metrics]
LinearizedRecord = Record[linearized.Spec, linearized.Metrics]
ConstantsRecord = Record[constants.Spec, constants.Metrics]
