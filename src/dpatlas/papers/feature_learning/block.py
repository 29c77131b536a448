"""Registers feature_learning."""

from dpatlas.core.blocks import Block

BLOCK = Block(
    key="feature_learning",
    title="Private feature learning with a two-layer net on single-index models (M1 report)",
    prefix="feat",
    package="dpatlas.papers.feature_learning",
    position=30,
    kinds=("simulation",),
)
