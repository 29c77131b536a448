"""Figures and tables of max_information: `python -m dpatlas.figures.max_information NAME`."""

import sys
from collections.abc import Sequence

from dpatlas.errors import run_command
from dpatlas.figures.maxinf_tables import maxinf_certificates, maxinf_grid
from dpatlas.figures.maxinf_theory import maxinf_coefficients, maxinf_kappa
from dpatlas.figures.output import figure_main

MODULE = "dpatlas.figures.max_information"
FIGURES = {figure.__name__: figure for figure in (maxinf_coefficients, maxinf_kappa)}
TABLES = {table.__name__: table for table in (maxinf_certificates, maxinf_grid)}


def main(arguments: Sequence[str]) -> int:
    """Make one figure or table from the command line."""
    return figure_main(arguments, MODULE, FIGURES, TABLES)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
