"""dp_sgld: sgld_privacy_loss."""

from dpatlas.papers.dp_sgld.figures.theory import sgld_privacy_loss

__all__ = ["sgld_privacy_loss"]
