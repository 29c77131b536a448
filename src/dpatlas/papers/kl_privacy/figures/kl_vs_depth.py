"""kl_privacy: kl_vs_depth."""

from dpatlas.papers.kl_privacy.figures.sweeps import kl_vs_depth

__all__ = ["kl_vs_depth"]
