"""dp_sgld: sgld_accuracy_constant."""

from dpatlas.papers.dp_sgld.figures.accuracy_tables import sgld_accuracy_constant

__all__ = ["sgld_accuracy_constant"]
