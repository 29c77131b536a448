"""lp_fft: lpfft_lora."""

from dpatlas.papers.lp_fft.figures.strategy_tables import lpfft_lora

__all__ = ["lpfft_lora"]
