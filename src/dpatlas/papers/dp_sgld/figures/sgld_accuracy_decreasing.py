"""dp_sgld: sgld_accuracy_decreasing."""

from dpatlas.papers.dp_sgld.figures.accuracy_tables import sgld_accuracy_decreasing

__all__ = ["sgld_accuracy_decreasing"]
