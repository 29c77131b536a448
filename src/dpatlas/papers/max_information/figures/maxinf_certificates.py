"""max_information: maxinf_certificates."""

from dpatlas.papers.max_information.figures.tables import maxinf_certificates

__all__ = ["maxinf_certificates"]
