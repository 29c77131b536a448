"""max_information: maxinf_kappa."""

from dpatlas.papers.max_information.figures.theory import maxinf_kappa

__all__ = ["maxinf_kappa"]
