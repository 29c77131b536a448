"""kl_privacy: kl_tradeoff."""

from dpatlas.papers.kl_privacy.figures.theory import kl_tradeoff

__all__ = ["kl_tradeoff"]
