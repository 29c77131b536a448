"""lp_fft: lpfft_theory."""

from dpatlas.papers.lp_fft.figures.theory import lpfft_theory

__all__ = ["lpfft_theory"]
