"""Registers max_information."""

from dpatlas.core.blocks import Block

BLOCK = Block(
    key="max_information",
    title="Certificates with priors learned by DP-SGD (Lampert and Zakerinia 2026)",
    prefix="maxinf",
    package="dpatlas.papers.max_information",
    position=50,
    kinds=(
        "certificates",
        "agreement",
        "coefficients",
        "kappa",
        "simulation",
    ),
)
