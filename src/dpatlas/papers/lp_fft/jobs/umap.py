"""lp_fft: jobs of kind umap."""

from dpatlas.jobs.job import Kind, LegacyFields, legacy
from dpatlas.papers.lp_fft.jobs.features import umap

KIND = Kind(
    legacy(umap),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting", "scikit-learn", "umap-learn"),
)
