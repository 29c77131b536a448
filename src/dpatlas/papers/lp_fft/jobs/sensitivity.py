"""lp_fft: jobs of kind sensitivity."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.lp_fft.jobs.layers import sensitivity

KIND = Kind(
    legacy(sensitivity),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting", "scikit-learn", "umap-learn"),
)
