"""Registers dp_sgld."""

from dpatlas_workflow.blocks import Block

BLOCK = Block(
    key="dp_sgld",
    title="Differential Privacy Guarantees for Stochastic Gradient Langevin Dynamics "
    "(Ryffel, Bach, Pointcheval, 2022)",
    prefix="sgld",
    package="dpatlas_workflow.papers.dp_sgld",
    position=20,
    kinds=(
        "protocol",
        "protocol_tuning",
        "accuracy",
        "accuracy_tuning",
        "finetune",
        "finetune_tuning",
        "long_training",
        "long_training_tuning",
        "privacy_loss",
        "counterexample",
        "utility",
    ),
)
