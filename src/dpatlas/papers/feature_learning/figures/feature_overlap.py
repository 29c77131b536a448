"""feature_learning: feature_overlap."""

from dpatlas.papers.feature_learning.figures.curves import feature_overlap

__all__ = ["feature_overlap"]
