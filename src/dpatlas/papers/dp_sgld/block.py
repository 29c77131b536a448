"""Registers dp_sgld."""

from dpatlas.core.blocks import Block

BLOCK = Block(
    key="dp_sgld",
    title="Differential Privacy Guarantees for Stochastic Gradient Langevin Dynamics "
    "(Ryffel, Bach, Pointcheval, 2022)",
    prefix="sgld",
    package="dpatlas.papers.dp_sgld",
    position=20,
    kinds=(
        "accuracy",
        "finetune",
        "long_training",
        "privacy_loss",
        "counterexample",
        "utility",
    ),
)
