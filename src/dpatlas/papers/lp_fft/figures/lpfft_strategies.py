"""lp_fft: lpfft_strategies."""

from dpatlas.papers.lp_fft.figures.strategy_tables import lpfft_strategies

__all__ = ["lpfft_strategies"]
