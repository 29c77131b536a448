"""Registers the block `pretrain`."""

from dpatlas_workflow.blocks import Block

BLOCK = Block(
    key="pretrain",
    title="Public backbones: what the features of the papers' networks are made of",
    prefix="pretrain",
    package="dpatlas_workflow.checks.pretrain",
    position=0,
    kinds=(
        "backbone",
        "imported",
        "transfer",
    ),
    writes_weights=("backbone", "imported"),
)
