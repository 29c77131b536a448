"""max_information: jobs of kind coefficients."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.max_information.jobs.theory import coefficients

KIND = Kind(
    legacy(coefficients), spec=LegacyFields, packages=("torch", "numpy", "scipy", "dp-accounting")
)
