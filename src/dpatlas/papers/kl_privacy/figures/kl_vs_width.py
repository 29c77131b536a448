"""kl_privacy: kl_vs_width."""

from dpatlas.papers.kl_privacy.figures.sweeps import kl_vs_width

__all__ = ["kl_vs_width"]
