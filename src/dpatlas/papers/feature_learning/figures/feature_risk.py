"""feature_learning: feature_risk."""

from dpatlas.papers.feature_learning.figures.curves import feature_risk

__all__ = ["feature_risk"]
