"""max_information: maxinf_grid."""

from dpatlas.papers.max_information.figures.tables import maxinf_grid

__all__ = ["maxinf_grid"]
