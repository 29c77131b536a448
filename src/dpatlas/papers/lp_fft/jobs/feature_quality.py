"""lp_fft: jobs of kind feature_quality."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.lp_fft.jobs.features import feature_quality

KIND = Kind(
    legacy(feature_quality),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting", "scikit-learn", "umap-learn"),
)
