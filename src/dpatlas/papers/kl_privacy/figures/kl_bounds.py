"""kl_privacy: kl_bounds."""

from dpatlas.papers.kl_privacy.figures.theory import kl_bounds

__all__ = ["kl_bounds"]
