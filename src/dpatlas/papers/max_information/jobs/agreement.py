"""max_information: jobs of kind agreement."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.max_information.jobs.certificates import agreement

KIND = Kind(
    legacy(agreement), spec=LegacyFields, packages=("torch", "numpy", "scipy", "dp-accounting")
)
