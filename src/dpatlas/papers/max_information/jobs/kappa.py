"""max_information: jobs of kind kappa."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.max_information.jobs.theory import kappa

KIND = Kind(legacy(kappa), spec=LegacyFields, packages=("torch", "numpy", "scipy", "dp-accounting"))
