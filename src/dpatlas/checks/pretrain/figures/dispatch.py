"""Interim."""

import sys

from dpatlas.checks.pretrain.figures.pretrain_samples import main
from dpatlas.errors import run_command

if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
