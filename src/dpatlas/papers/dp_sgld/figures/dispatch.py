"""Figures and tables of dp_sgld, records in."""

import sys
from collections.abc import Sequence

from dpatlas.errors import run_command
from dpatlas.papers.dp_sgld.figures.accuracy_tables import (
    sgld_accuracy_constant,
    sgld_accuracy_decreasing,
    sgld_finetune,
)
from dpatlas.papers.dp_sgld.figures.sgld_long_training import sgld_long_training
from dpatlas.papers.dp_sgld.figures.theory import (
    sgld_constants,
    sgld_counterexample,
    sgld_privacy_loss,
    sgld_published,
    sgld_utility,
)
from dpatlas.show.output import figure_main

MODULE = "dpatlas.papers.dp_sgld.figures.dispatch"
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
