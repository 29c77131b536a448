"""Registers feature_learning."""

from dpatlas_workflow.blocks import Block

BLOCK = Block(
    key="feature_learning",
    title="Private feature learning for single-index models (Nguyen, 2025)",
    prefix="feat",
    package="dpatlas_workflow.papers.feature_learning",
    position=30,
    kinds=("simulation",),
)
