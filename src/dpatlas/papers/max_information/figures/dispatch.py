"""Figures and tables of max_information."""

import sys
from collections.abc import Sequence

from dpatlas.errors import run_command
from dpatlas.papers.max_information.figures.tables import maxinf_certificates, maxinf_grid
from dpatlas.papers.max_information.figures.theory import maxinf_coefficients, maxinf_kappa
from dpatlas.show.output import figure_main

MODULE = "dpatlas.papers.max_information.figures.dispatch"
FIGURES = {figure.__name__: figure for figure in (maxinf_coefficients, maxinf_kappa)}
TABLES = {table.__name__: table for table in (maxinf_certificates, maxinf_grid)}


def main(arguments: Sequence[str]) -> int:
    """Make one figure or table from the command line."""
    return figure_main(arguments, MODULE, FIGURES, TABLES)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
