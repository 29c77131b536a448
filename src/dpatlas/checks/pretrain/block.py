"""Registers pretrain."""

from dpatlas.core.blocks import Block

BLOCK = Block(
    key="pretrain",
    title="Public backbones, trained once or imported, and what their features are worth",
    prefix="pretrain",
    package="dpatlas.checks.pretrain",
    position=0,
    kinds=(
        "backbone",
        "imported",
        "transfer",
    ),
)
