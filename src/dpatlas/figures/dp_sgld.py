"""Figures and tables of dp_sgld: `python -m dpatlas.figures.dp_sgld NAME`, records in."""

import sys
from collections.abc import Sequence

from dpatlas.errors import run_command
from dpatlas.figures.output import figure_main
from dpatlas.figures.sgld_learning import sgld_long_training
from dpatlas.figures.sgld_tables import (
    sgld_accuracy_constant,
    sgld_accuracy_decreasing,
    sgld_finetune,
)
from dpatlas.figures.sgld_theory import (
    sgld_constants,
    sgld_counterexample,
    sgld_privacy_loss,
    sgld_published,
    sgld_utility,
)

MODULE = "dpatlas.figures.dp_sgld"
FIGURES = {
    figure.__name__: figure
    for figure in (sgld_privacy_loss, sgld_counterexample, sgld_utility, sgld_long_training)
}
TABLES = {
    table.__name__: table
    for table in (
        sgld_accuracy_constant,
        sgld_accuracy_decreasing,
        sgld_finetune,
        sgld_constants,
        sgld_published,
    )
}


def main(arguments: Sequence[str]) -> int:
    """Make one figure or table from the command line."""
    return figure_main(arguments, MODULE, FIGURES, TABLES)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
