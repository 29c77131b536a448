"""dp_sgld: sgld_finetune."""

from dpatlas.papers.dp_sgld.figures.accuracy_tables import sgld_finetune

__all__ = ["sgld_finetune"]
