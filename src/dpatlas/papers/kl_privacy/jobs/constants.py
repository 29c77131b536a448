"""kl_privacy: jobs of kind constants."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.kl_privacy.jobs.linearized import constants

KIND = Kind(legacy(constants), spec=LegacyFields, packages=("torch", "numpy"))
