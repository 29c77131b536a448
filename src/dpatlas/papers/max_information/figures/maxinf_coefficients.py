"""max_information: maxinf_coefficients."""

from dpatlas.papers.max_information.figures.theory import maxinf_coefficients

__all__ = ["maxinf_coefficients"]
