"""lp_fft: lpfft_sensitivity."""

from dpatlas.papers.lp_fft.figures.theory import lpfft_sensitivity

__all__ = ["lpfft_sensitivity"]
