"""dp_sgld: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure(
        "sgld_privacy_loss", needs=("privacy_loss",), place="Thm 3.2 (the paper has no such figure)"
    ),
    figure("sgld_counterexample", needs=("counterexample",), place="Thm 3.2 (ours)"),
    figure("sgld_utility", needs=("utility",), place="Thms 4.1-4.4"),
    figure("sgld_long_training", needs=("long_training",), place="ours"),
    table("sgld_accuracy_constant", needs=("accuracy",), place="Table 1"),
    table("sgld_accuracy_decreasing", needs=("accuracy",), place="Table 2"),
    table("sgld_finetune", needs=("finetune",), place="Table 3"),
    table("sgld_constants", needs=("accuracy",), place="Table 4"),
    table(
        "sgld_published",
        needs=("privacy_loss", "accuracy"),
        place="Tables 1, 2 and the authors' code",
    ),
)
