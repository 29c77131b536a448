"""dp_sgld: sgld_utility."""

from dpatlas.papers.dp_sgld.figures.theory import sgld_utility

__all__ = ["sgld_utility"]
