"""dp_sgld: jobs of kind utility."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.dp_sgld.jobs.theory import utility

KIND = Kind(
    legacy(utility),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
