"""max_information: jobs of kind simulation."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.max_information.jobs.theory import simulation

KIND = Kind(
    legacy(simulation), spec=LegacyFields, packages=("torch", "numpy", "scipy", "dp-accounting")
)
