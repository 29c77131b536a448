"""dp_sgld: jobs of kind counterexample."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.dp_sgld.jobs.theory import counterexample

KIND = Kind(
    legacy(counterexample),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
