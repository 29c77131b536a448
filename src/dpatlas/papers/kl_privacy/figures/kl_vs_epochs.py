"""kl_privacy: kl_vs_epochs."""

from dpatlas.papers.kl_privacy.figures.sweeps import kl_vs_epochs

__all__ = ["kl_vs_epochs"]
