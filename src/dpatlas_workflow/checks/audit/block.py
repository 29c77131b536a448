"""Registers the block `audit`."""

from dpatlas_workflow.blocks import Block

BLOCK = Block(
    key="audit",
    title="Audit: attacks on our own mechanisms, and a network trained by them",
    prefix="audit",
    package="dpatlas_workflow.checks.audit",
    position=100,
    kinds=("mechanism", "network"),
)
