"""lp_fft: lpfft_privacy_utility."""

from dpatlas.papers.lp_fft.figures.strategies import lpfft_privacy_utility

__all__ = ["lpfft_privacy_utility"]
