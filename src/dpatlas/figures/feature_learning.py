"""Figures and table of feature_learning: `python -m dpatlas.figures.feature_learning NAME`."""

import sys
from collections.abc import Sequence

from dpatlas.errors import run_command
from dpatlas.figures.feature_curves import feature_overlap, feature_risk
from dpatlas.figures.feature_tables import feature_risk_table
from dpatlas.figures.output import figure_main

MODULE = "dpatlas.figures.feature_learning"
FIGURES = {figure.__name__: figure for figure in (feature_overlap, feature_risk)}
TABLES = {table.__name__: table for table in (feature_risk_table,)}


def main(arguments: Sequence[str]) -> int:
    """Make one figure or table from the command line."""
    return figure_main(arguments, MODULE, FIGURES, TABLES)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
