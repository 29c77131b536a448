"""lp_fft: jobs of kind imbalance."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.lp_fft.jobs.layers import imbalance

KIND = Kind(
    legacy(imbalance),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting", "scikit-learn", "umap-learn"),
)
