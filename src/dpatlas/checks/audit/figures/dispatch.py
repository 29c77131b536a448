"""Interim."""

import sys

from dpatlas.checks.audit.figures.audit import main
from dpatlas.errors import run_command

if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
