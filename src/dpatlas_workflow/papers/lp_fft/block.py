"""Registers lp_fft."""

from dpatlas_workflow.blocks import Block

BLOCK = Block(
    key="lp_fft",
    title="Characterizing the Training Dynamics of Private Fine-tuning with Langevin diffusion "
    "(Ke, Hou, Oh, Fanti, 2024)",
    prefix="lpfft",
    package="dpatlas_workflow.papers.lp_fft",
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
