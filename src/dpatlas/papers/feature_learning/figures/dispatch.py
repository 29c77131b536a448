"""Figures and table of feature_learning."""

import sys
from collections.abc import Sequence

from dpatlas.errors import run_command
from dpatlas.papers.feature_learning.figures.curves import feature_overlap, feature_risk
from dpatlas.papers.feature_learning.figures.feature_risk_table import feature_risk_table
from dpatlas.show.output import figure_main

MODULE = "dpatlas.papers.feature_learning.figures.dispatch"
FIGURES = {figure.__name__: figure for figure in (feature_overlap, feature_risk)}
TABLES = {table.__name__: table for table in (feature_risk_table,)}


def main(arguments: Sequence[str]) -> int:
    """Make one figure or table from the command line."""
    return figure_main(arguments, MODULE, FIGURES, TABLES)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
