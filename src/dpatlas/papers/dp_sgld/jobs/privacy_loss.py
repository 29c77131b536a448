"""dp_sgld: jobs of kind privacy_loss."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.dp_sgld.jobs.theory import privacy_loss

KIND = Kind(
    legacy(privacy_loss),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
