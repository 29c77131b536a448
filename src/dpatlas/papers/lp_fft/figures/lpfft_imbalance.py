"""lp_fft: lpfft_imbalance."""

from dpatlas.papers.lp_fft.figures.theory import lpfft_imbalance

__all__ = ["lpfft_imbalance"]
