"""Registers kl_privacy."""

from dpatlas_workflow.blocks import Block

BLOCK = Block(
    key="kl_privacy",
    title="Initialization Matters: Privacy-Utility Analysis of Overparameterized Neural "
    "Networks (Ye, Zhu, Liu, Shokri, Cevher, 2023)",
    prefix="kl",
    package="dpatlas_workflow.papers.kl_privacy",
    position=10,
    kinds=(
        "training",
        "linearized",
        "constants",
    ),
)
