"""Registers lp_fft."""

from dpatlas.core.blocks import Block

BLOCK = Block(
    key="lp_fft",
    title="Differentially private fine-tuning distorts features: linear-probe first (DP-LP-FFT)",
    prefix="lpfft",
    package="dpatlas.papers.lp_fft",
    position=40,
    kinds=(
        "strategies",
        "strategies_tuning",
        "feature_quality",
        "umap",
        "dynamics",
        "distortion",
        "sensitivity",
        "imbalance",
    ),
)
