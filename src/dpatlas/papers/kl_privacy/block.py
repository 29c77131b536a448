"""Registers kl_privacy."""

from dpatlas.core.blocks import Block

BLOCK = Block(
    key="kl_privacy",
    title="KL privacy loss of noisy gradient descent (Ye et al. 2023)",
    prefix="kl",
    package="dpatlas.papers.kl_privacy",
    position=10,
    kinds=(
        "training",
        "linearized",
        "constants",
    ),
)
