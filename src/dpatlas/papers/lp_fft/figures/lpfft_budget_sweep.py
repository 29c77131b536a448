"""lp_fft: lpfft_budget_sweep."""

from dpatlas.papers.lp_fft.figures.strategies import lpfft_budget_sweep

__all__ = ["lpfft_budget_sweep"]
