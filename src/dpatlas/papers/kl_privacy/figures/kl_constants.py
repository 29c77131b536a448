"""kl_privacy: kl_constants."""

from dpatlas.papers.kl_privacy.figures.sweeps import kl_constants

__all__ = ["kl_constants"]
