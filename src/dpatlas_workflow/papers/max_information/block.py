"""Registers max_information."""

from dpatlas_workflow.blocks import Block

BLOCK = Block(
    key="max_information",
    title="From Privacy to Generalization: Linear Max-Information Bounds for DP-SGD "
    "(Lampert, Zakerinia, 2026)",
    prefix="maxinf",
    package="dpatlas_workflow.papers.max_information",
    position=50,
    kinds=(
        "certificates",
        "agreement",
        "coefficients",
        "kappa",
        "simulation",
    ),
)
