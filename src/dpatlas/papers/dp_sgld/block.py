"""Registers dp_sgld."""

from dpatlas.core.blocks import Block

BLOCK = Block(
    key="dp_sgld",
    title="Langevin SGD against DP-SGD on frozen features (Ryffel et al. 2022)",
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
